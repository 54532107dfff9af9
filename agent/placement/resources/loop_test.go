package resources

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
)

func TestOthersLeaveBeforeAnExclusiveContainerEnters(t *testing.T) {
	n, pool := plainNode(t)
	n.runs("a", "0-7", true)
	n.runs("b", "0-7", true)
	n.assign("x", 2, 3)
	place, leave, err := enter(t.Context(), pool, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if place.CPUs != "2-3" || !place.Exclusive {
		t.Errorf("placement %+v, want CPUs 2-3 for itself", place)
	}
	if got, want := n.updates(), "a-c=0-1,4-7 b-c=0-1,4-7"; got != want {
		t.Errorf("updates %q, want %q", got, want)
	}
}

// A round waits for a shared container that is being created with an older pool, and updates it
// even before it was observed.
func TestCreationsWithAnOlderPoolAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		place, leave, err := enter(t.Context(), pool, "slow")
		if err != nil || place.CPUs != "0-7" || place.Exclusive {
			t.Fatalf("Enter() = %+v, %v, want the whole pool", place, err)
		}
		n.assign("x", 7)
		entered := make(chan error, 1)
		go func() {
			_, _, err := enter(t.Context(), pool, "x")
			entered <- err
		}()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("the exclusive container entered while another was being created on its CPU")
		default:
		}
		n.runs("slow", "0-7", false)
		leave()
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		if got, want := n.updates(), "slow-c=0-6"; got != want {
			t.Errorf("updates %q, want %q", got, want)
		}
	})
}

func TestNothingToDoInSteadyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		n.assign("x", 2, 3)
		n.runs("x", "2-3", true)
		n.runs("a", "0-1,4-7", true)
		n.runs("mute", "", true) // a runtime that does not report sets gets the update once
		pool.Wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := n.updates(), "mute-c=0-1,4-7"; got != want {
			t.Errorf("updates in a minute: %q, want %q", got, want)
		}
		n.runs("a", "0-7", true) // a foreign change
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got, want := n.updates(), "a-c=0-1,4-7"; got != want {
			t.Errorf("updates after a change from outside: %q, want %q", got, want)
		}
	})
}

// A change of the assignments is followed without Wake.
func TestAChangeOfTheAssignmentsIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := plainNode(t)
		n.runs("a", "0-7", true)
		n.assign("x", 2)
		n.changed <- struct{}{}
		synctest.Wait()
		if got, want := n.updates(), "a-c=0-1,3-7"; got != want {
			t.Errorf("updates %q, want %q", got, want)
		}
	})
}

func TestFailuresOfUpdates(t *testing.T) {
	for name, test := range map[string]struct {
		fail  error
		ended bool
		want  bool
	}{
		"the container is gone":     {fail: status.Error(codes.NotFound, "no such container")},
		"the container has ended":   {fail: errors.New("not running"), ended: true},
		"the runtime does not obey": {fail: errors.New("cgroup is busy"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, pool := plainNode(t)
			n.runs("a", "0-7", true)
			n.fail = func(string) error { return test.fail }
			if test.ended {
				n.real["a"] = cri.Pod{UID: "a"}
			}
			n.assign("x", 1)
			_, _, err := enter(t.Context(), pool, "x")
			if (err != nil) != test.want {
				t.Errorf("Enter() = %v, want an error: %v", err, test.want)
			}
		})
	}
}

// Exclusive containers that arrive during a round share the next one. It costs a shared container
// one update, and the runtime no further reads.
func TestManyEnterTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		n.runs("a", "0-7", true)
		release := make(chan struct{})
		n.before = func() { <-release }
		entered := make(chan error, 4)
		for cpu := 1; cpu <= 4; cpu++ {
			uid := types.UID(fmt.Sprintf("x%d", cpu))
			n.assign(uid, cpu)
			go func() {
				_, _, err := enter(t.Context(), pool, uid)
				entered <- err
			}()
			synctest.Wait() // the first one's round hangs in its update
		}
		close(release)
		for range 4 {
			if err := <-entered; err != nil {
				t.Fatal(err)
			}
		}
		if got, want := n.updates(), "a-c=0,2-7 a-c=0,5-7"; got != want {
			t.Errorf("updates %q, want %q", got, want)
		}
		if n.rereads > 0 {
			t.Errorf("pods were read %d times, want never: what was told is known", n.rereads)
		}
	})
}

// A pod that is gone before it was observed is read once.
func TestPodsThatVanishAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		_, leave, err := enter(t.Context(), pool, "short")
		if err != nil {
			t.Fatal(err)
		}
		leave()
		for range 3 {
			pool.Wake()
			synctest.Wait()
		}
		if n.rereads != 1 {
			t.Errorf("%d reads of a pod that is gone, want 1", n.rereads)
		}
	})
}

// After a failed update the set is unknown, so the same set is written again.
func TestAFailedUpdateMayHaveHadAnEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		n.runs("a", "0-7", true)
		n.assign("x", 7)
		n.fail = func(string) error { return errors.New("timed out") }
		if _, _, err := enter(t.Context(), pool, "x"); err == nil {
			t.Fatal("Enter() succeeded, want the error of the update")
		}
		n.fail = nil
		n.runs("a", "0-6", false) // the failed update had an effect after all
		n.assign("x")
		pool.Wake()
		synctest.Wait()
		if got, want := n.updates(), "a-c=0-7"; got != want {
			t.Errorf("updates %q, want %q", got, want)
		}
	})
}

func TestEnterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		_, leave, err := enter(t.Context(), pool, "slow")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		n.assign("x", 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := enter(ctx, pool, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter() = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// Without shared CPUs, a container would be created without a set and run on exclusive CPUs.
func TestNoSharedContainerWithoutSharedCPUs(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0}}, CPUs: []topology.CPU{{ID: 0}, {ID: 1, Core: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	strict := cpumanager.Options{StrictReservation: true}
	static, err := cpumanager.NewStatic(m, cpuset.New(0), strict)
	if err != nil {
		t.Fatal(err)
	}
	n := &world{real: map[types.UID]cri.Pod{}, seen: map[types.UID]cri.Pod{}}
	pool := New(Config{
		Hardware: func() machine.Hardware { return machine.Hardware{Machine: m, CPUs: static} },
		State:    n.state, Pod: n.spec, Runtime: n, Observer: n,
	})
	place, leave, err := enter(t.Context(), pool, "shares")
	if err != nil || place.CPUs != "1" {
		t.Fatalf("Enter() = %+v, %v, want CPU 1", place, err)
	}
	leave()
	n.assign("x", 1)
	var empty *cpumanager.EmptyPoolError
	if place, _, err := enter(t.Context(), pool, "shares"); !errors.As(err, &empty) {
		t.Errorf("Enter() = %+v, %v, want an *EmptyPoolError", place, err)
	}
}
