package podworker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// A pod that ended by itself does not run again when its spec changes: what it held may be
// another's.
func TestWorkersCompletedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["job"] = []run{{time.Second, 0}}
		n.Update(Desired{Pod: podOf("a", "Never job")})
		n.at(time.Minute)
		if r := n.reports["a"]; r.Decision.State != Finished {
			t.Fatalf("the pod is in state %s", r.Decision.State)
		}
		n.log = nil
		n.Update(Desired{Pod: podOf("a", "Always job")})
		n.at(time.Hour)
		n.expect(t)
	})
}

// A shorter grace reaches the worker that removes the pod, and makes none where there is none.
func TestWorkersHasten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = time.Hour
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(0)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(10 * time.Second)
		n.log = nil
		n.Hasten(Desired{Pod: pod, Stop: &Stop{Grace: 5 * time.Second, Remove: true}})
		n.at(time.Hour)
		n.expect(t,
			"15s a: StopContainers c2 in 5s",
			"15s a: StopSandboxes s1",
			"15s a: CleanUp",
			"15s a: RemovePod")
		n.log = nil
		n.Hasten(Desired{Pod: pod, Stop: &Stop{Grace: time.Second, Remove: true}})
		n.at(2 * time.Hour)
		n.expect(t)
		if diff := cmp.Diff([]types.UID{"a"}, n.gone); diff != "" {
			t.Errorf("gone (-want +got):\n%s", diff)
		}
	})
}
