package agent

import (
	"sync/atomic"
	"testing"

	"github.com/numalet/numalet/agent/pods/podstatus"
)

// A pod that is not known may be the node's until what all sources had was taken in: that they have sent
// it is not enough.
func TestMayHave(t *testing.T) {
	p := podDomain{statuses: statusDomain{Store: podstatus.New(podstatus.Config{}),
		pubs: publishers{complete: new(atomic.Bool)}}}
	if !p.mayHave("u") {
		t.Error("a pod is gone before the sources were heard")
	}
	p.statuses.pubs.heard()
	if p.mayHave("u") {
		t.Error("a pod that no source has may be there")
	}
}
