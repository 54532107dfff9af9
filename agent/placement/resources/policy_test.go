package resources

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
)

// Under policy none, containers with a set get all CPUs, and exclusive ones a quota; containers
// without a set stay as they are. Back under the static policy all is as before.
func TestPolicyNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		n.assign("x", 2, 3)
		n.runs("x", "2-3", true)
		n.runs("a", "0-1,4-7", true)
		n.runs("fresh", "", true)
		static := n.policy()
		n.lock(func() { n.static = nil })
		expect := func(want string) {
			t.Helper()
			pool.Wake()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := n.updates(); got != want {
				t.Errorf("updates %q, want %q", got, want)
			}
		}
		expect("a-c=0-7 x-c=0-7:2000")
		expect("")
		place, leave, err := enter(t.Context(), pool, "x")
		if err != nil || place.CPUs != "" || place.Exclusive ||
			!pool.Shared().Equals(cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)) {
			t.Errorf("Enter() = %+v, %v; shared are %s", place, err, pool.Shared())
		}
		leave()

		n.lock(func() { n.static = static })
		expect("a-c=0-1,4-7 fresh-c=0-1,4-7 x-c=2-3:-1")
	})
}

// CPUs that were reserved after a container got them stay its own.
func TestReservedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		n.assign("x", 2, 3)
		n.runs("x", "2-3", true)
		n.runs("a", "0-1,4-7", true)
		static, err := cpumanager.NewStatic(eightCPUs(t), cpuset.New(3), cpumanager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		n.lock(func() { n.static = static })
		pool.Wake()
		synctest.Wait()
		if got := n.updates(); got != "" {
			t.Errorf("updates %q, want none", got)
		}
	})
}
