package report

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
)

// A rejection is reported with the counted resource that is short, once.
func TestRejectionSaysWhatIsShort(t *testing.T) {
	var told []Result
	r := New(func(r Result) { told = append(told, r) }, nil)
	p, why := podtest.New("p"), &allocation.Rejection{Reason: "OutOfcpu", Short: v1.ResourceCPU}
	basis := decide.BasisOf(decide.Snapshot{}, decide.Request{Demand: decide.Demand{Pod: p}}, decide.Decision{})
	r.Explain(p, line.Explain{Verdict: line.Verdict{Basis: basis}})
	r.Say(p, record.Say{Outcome: decide.Wait, Reason: why.Reason})
	r.Reject(p, why)
	r.Reject(p, why)
	if len(told) != 2 || told[0].Short != "" || told[1].Short != v1.ResourceCPU {
		t.Errorf("told was %+v", told)
	}
}
