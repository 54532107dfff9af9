package test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestExplainNode: a user of a node that is short of memory is told so, and who is next: nobody here,
// since the pods of manifests are critical.
func TestExplainNode(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["evictionSoft"] = map[string]string{"memory.available": "900Ti", "pid.available": "1"}
	n.Settings["evictionSoftGracePeriod"] = map[string]string{"memory.available": "2h", "pid.available": "3m"}
	n.Settings["evictionHard"] = map[string]string{"memory.available": "1Mi", "nodefs.inodesFree": "0%"}
	n.Start()
	n.Pod("app", plain("app"))
	n.AwaitPhase("app-node", v1.PodRunning)
	for _, args := range [][]string{nil, {"node"}} {
		n.Eventually(fmt.Sprintf("explain %q tells of the shortage", args), func() error {
			out, err := explainPod(t, n, args...)
			if err != nil {
				return err
			}
			for _, want := range []string{
				"Node node is short: memory.available MemoryPressure holds SIGNAL", "memory.available ",
				" 900Ti met for ", "; soft: acts when met for 2h0m0s ", "pid.available",
				"No pod may be evicted; never: 1 critical",
			} {
				if !strings.Contains(out, want) {
					return fmt.Errorf("no %q in\n%s", want, out)
				}
			}
			return nil
		})
	}
	if out, err := explainPod(t, n, "nobody"); err == nil || !strings.Contains(out, "nobody is known") {
		t.Errorf("a pod that is not there: %v: %s", err, out)
	}
}
