package test

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestCallsOfAPodsEnd: to end a pod takes the calls that end it, and few to see what became of it.
func TestCallsOfAPodsEnd(t *testing.T) {
	t.Parallel()
	const pods, most = 20, 8
	n := harness.New(t)
	n.Start()
	for i := range pods {
		n.Pod(fmt.Sprint("p", i), plain(fmt.Sprint("p", i)))
	}
	for i := range pods {
		n.AwaitPhase(fmt.Sprintf("p%d-node", i), v1.PodRunning)
	}
	calls := func() map[string]int { return n.Runtime.State().Calls }
	before := calls()
	for i := range pods {
		n.RemovePod(fmt.Sprint("p", i))
	}
	for i := range pods {
		n.AwaitGone(fmt.Sprintf("p%d-node", i))
	}
	after := calls()
	sum := 0
	for name := range maps.Clone(after) {
		after[name] -= before[name]
		sum += after[name]
	}
	t.Logf("%d calls for %d pods: %v", sum, pods, after)
	if sum >= most*pods { // those of the node are in it: two lists each 10 s
		t.Errorf("%d calls for %d pods: %v", sum, pods, after)
	}
}
