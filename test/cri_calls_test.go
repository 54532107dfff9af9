package test

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestCallsOfAPodsEnd bounds the CRI calls that the end of a pod takes: those that end it, and few
// to see the result.
func TestCallsOfAPodsEnd(t *testing.T) {
	t.Parallel()
	const pods, most = 20, 12
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
	// On an idle machine there are seven calls per pod. On a busy one the events of a pod come apart,
	// and each causes a read. The node's two lists each 10 s are counted, too.
	if sum >= most*pods {
		t.Errorf("%d calls for %d pods: %v", sum, pods, after)
	}
}

// TestCallsOfARestart: the restart of a container causes one read after its exit event and one
// after the start, two lists each, and no further read in between.
func TestCallsOfARestart(t *testing.T) {
	t.Parallel()
	const pods, most = 40, 5
	n := harness.New(t)
	n.Settings["registryPullQPS"] = 0
	n.Start()
	for i := range pods {
		n.Pod(fmt.Sprint("p", i), plain(fmt.Sprint("p", i), "main: exit=1 after=5s attempts=1"))
	}
	calls := func() map[string]int { return n.Runtime.State().Calls }
	count := func(starts int) map[string]int {
		n.Eventually(fmt.Sprint(starts, " starts"), func() error {
			if got := calls()["StartContainer"]; got < starts {
				return fmt.Errorf("there were %d", got)
			}
			return nil
		})
		return calls()
	}
	before := count(pods)
	after := count(2 * pods)
	lists := 0
	for _, name := range []string{"ListContainers", "ListPodSandbox"} {
		lists += after[name] - before[name]
	}
	if lists > most*pods {
		t.Errorf("%d lists for %d restarts", lists, pods)
	}
}
