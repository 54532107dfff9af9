package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
)

// resourceClaims are what the API server and drivers have of each pod's claim.
type resourceClaims struct {
	mu        sync.Mutex
	lacks     map[types.UID]claim.Lack
	hangs     bool // the API server
	knows     bool // the claims are known while something is lacking
	at        claim.Place
	elsewhere map[types.UID]claim.Place // of pods whose claim is not at
	answer    error                     // of the driver
	takes     time.Duration
	again     string // the pods' claims were made again: their UIDs end with it
	begun     map[types.UID]bool
	prepared  []types.UID // calls
	released  []types.UID
}

func (c *resourceClaims) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *resourceClaims) Begin(pod *v1.Pod) { c.set(func() { c.begun[pod.UID] = true }) }

func (c *resourceClaims) Release(pod types.UID) {
	c.set(func() {
		if c.begun[pod] {
			c.released = append(c.released, pod)
		}
		delete(c.begun, pod)
	})
}

func (c *resourceClaims) Uses(pod *v1.Pod) (uses []claim.Use, lack claim.Lack) {
	c.set(func() {
		if lack = c.lacks[pod.UID]; lack.Reason == "" || c.knows {
			at, other := c.elsewhere[pod.UID]
			if !other {
				at = c.at
			}
			uses = []claim.Use{{Pod: "gpu", Claim: dra.Claim{UID: c.of(pod.UID)}, Devices: []claim.Device{
				{Driver: "gpu.example.com", Pool: "node", Name: "gpu-0", Place: at}}}}
		}
	})
	return uses, lack
}

func (c *resourceClaims) of(pod types.UID) types.UID { return "claim-" + pod + types.UID(c.again) }

func (c *resourceClaims) Look(ctx context.Context, _ *v1.Pod) {
	if c.hangs {
		<-ctx.Done()
	}
}

func (c *resourceClaims) Prepare(ctx context.Context, pod *v1.Pod, claims []types.UID) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.takes):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(claims, func(uid types.UID) bool { return uid != c.of(pod.UID) }) {
		return claim.ErrReplaced
	}
	c.prepared = append(c.prepared, pod.UID)
	return c.answer
}

// calls takes the pods whose claims were to be prepared since the last time.
func (c *resourceClaims) calls() (out []types.UID) {
	c.set(func() { out, c.prepared = c.prepared, nil })
	return out
}

func (c *resourceClaims) ends() (out []types.UID) {
	c.set(func() { out, c.released = c.released, nil })
	return out
}

// claiming is a pod whose container uses a claim.
func claiming(uid, limits string) *v1.Pod {
	p := pod(uid, limits)
	podtest.Claims("gpu=gpu-1")(p)
	return p
}

var (
	noClaim  = claim.Lack{Reason: claim.ReasonWaitClaim, Why: "claim gpu is not allocated"}
	noDriver = claim.Lack{Reason: claim.ReasonWaitDriver, Why: "driver x is not registered"}
)

const prepareFailed = "Failed to prepare dynamic resources: prepare dynamic resources: busy"

func withClaims(t *testing.T, dir string, wait time.Duration) (*desk, *resourceClaims) {
	c := &resourceClaims{lacks: map[types.UID]claim.Lack{}, begun: map[types.UID]bool{}}
	p := &plugins{}
	p.offer("example.com/gpu", 4)
	return open(t, dir, p, func(cfg *Config) { cfg.Claims, cfg.Wait = c, wait }), c
}

func (c *resourceClaims) expect(t *testing.T, prepared, released []types.UID) {
	t.Helper()
	if got := slices.Sorted(slices.Values(c.calls())); !slices.Equal(got, prepared) {
		t.Errorf("prepared for %v, want %v", got, prepared)
	}
	if got := slices.Sorted(slices.Values(c.ends())); !slices.Equal(got, released) {
		t.Errorf("released are %v, want %v", got, released)
	}
}

// A pod's claims are prepared once, beside Allocate, and the pod is admitted when both are done.
func TestResourceClaimsArePrepared(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		c.takes = 100 * time.Millisecond
		d.queue.Submit(claiming("a", "cpu=2 example.com/gpu=1"), false)
		synctest.Wait()
		if !d.quiet() || d.plugins.calls.Load() != 1 {
			t.Errorf("before the driver has answered: %q, %d calls of Allocate", d.hear(),
				d.plugins.calls.Load())
		}
		time.Sleep(c.takes)
		d.expect("a Admit")
		held := d.store.State().Pods["a"].Containers["main"]
		if claims := held.Claims(); len(claims) != 1 || claims[0].UID != "claim-a" || held.CPUs().Size() != 2 {
			t.Errorf("recorded is %v", held)
		}
		alone := claiming("b", "cpu=1")
		alone.Spec.Containers[0].Resources.Claims = nil // no container uses it
		d.queue.Submit(alone, false)
		d.queue.Submit(pod("c", "cpu=1"), false)
		time.Sleep(c.takes)
		synctest.Wait()
		if got := d.hear(); len(got) != 2 || !slices.Contains(got, "b Admit") || !slices.Contains(got, "c Admit") {
			t.Errorf("said %q", got)
		}
		c.expect(t, []types.UID{"a", "b"}, nil)
		d.queue.Release("a")
		d.queue.Release("b")
		d.queue.Release("c")
		synctest.Wait()
		c.expect(t, nil, []types.UID{"a", "b"})
		if left := d.store.State().Pods; len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// A pod that waits for its claim or a driver says so, keeps its place, and gives up after the time that
// pods wait for plugins.
func TestResourceClaimsAreAwaited(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		c.lacks["a"] = noClaim
		d.queue.Submit(claiming("a", "cpu=4"), false)
		d.expect("a Wait: WaitingForResourceClaim: claim gpu is not allocated")
		d.queue.Submit(pod("b", "cpu=4"), false)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus available " +
			"to satisfy request: requested=4, available=3, which is unexpected")
		c.set(func() { c.lacks["a"] = noDriver })
		d.queue.Poke()
		d.expect("a Wait: WaitingForResourceDriver: driver x is not registered")
		d.queue.Poke()
		d.expect()
		c.set(func() { c.lacks["a"] = claim.Lack{} })
		d.queue.Poke()
		d.expect("a Admit")
		c.expect(t, []types.UID{"a"}, nil)

		c.set(func() { c.lacks["c"] = noDriver })
		d.queue.Submit(claiming("c", "cpu=1"), false)
		d.expect("c Wait: WaitingForResourceDriver: driver x is not registered")
		time.Sleep(59 * time.Second)
		d.hear()
		time.Sleep(time.Second)
		synctest.Wait()
		said := d.hear()
		if !slices.Contains(said, "c Reject: UnexpectedAdmissionError: driver x is not registered") {
			t.Errorf("said %q", said)
		}
		c.expect(t, nil, []types.UID{"c"})
	})
}

// The API server has three seconds to tell of the claims before anything is said, also where pods do
// not wait.
func TestResourceClaimsAreLookedAt(t *testing.T) {
	for _, wait := range []time.Duration{time.Minute, 0} {
		bubble(t, func(t *testing.T, dir string) {
			d, c := withClaims(t, dir, wait)
			defer d.stop()
			c.hangs = true
			c.lacks["a"] = noClaim
			d.queue.Submit(claiming("a", "cpu=4"), false)
			time.Sleep(2 * time.Second)
			d.expect()
			time.Sleep(time.Second)
			d.expect("a Wait: WaitingForResourceClaim: claim gpu is not allocated")
		})
	}
}

// Where pods do not wait for plugins they wait for their claims all the same, without end, as with the
// kubelet: nothing is held meanwhile, and what a driver refuses is tried again.
func TestResourceClaimsAreAwaitedWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, 0)
		defer d.stop()
		c.lacks["a"], c.answer = noClaim, errors.New("busy")
		d.queue.Submit(claiming("a", "cpu=4"), false)
		d.expect("a Wait: WaitingForResourceClaim: claim gpu is not allocated")
		time.Sleep(time.Hour)
		d.queue.Submit(pod("b", "cpu=4"), false)
		d.expect("b Admit")
		d.queue.Leaving("b", false)
		d.queue.Release("b")
		c.set(func() { c.lacks["a"] = claim.Lack{} })
		d.queue.Poke()
		d.expect("a Wait: WaitingForResourceDriver: " + prepareFailed)
		time.Sleep(time.Hour)
		d.expect()
		if calls := c.calls(); len(calls) < 300 || len(calls) > 400 {
			t.Errorf("in an hour the driver was called %d times", len(calls))
		}
		c.set(func() { c.answer = nil })
		time.Sleep(10 * time.Second)
		d.expect("a Admit")
	})
}

// What a driver refuses is tried again, in the kubelet's words, until the pod's time is over. Then it is
// released.
func TestResourceClaimsAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		c.answer = errors.New("busy")
		d.queue.Submit(claiming("a", "cpu=4"), false)
		d.queue.Submit(claiming("b", "cpu=1"), false)
		synctest.Wait()
		said := d.hear()
		for _, uid := range []string{"a", "b"} {
			if !slices.Contains(said, uid+" Wait: WaitingForResourceDriver: "+prepareFailed) {
				t.Errorf("said %q", said)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if calls := c.calls(); len(calls) < 6 || len(calls) > 10 {
			t.Errorf("in ten seconds the driver was called for %v", calls)
		}
		d.queue.Leaving("b", false)
		d.queue.Release("b")
		c.set(func() { c.answer = nil })
		time.Sleep(10 * time.Second)
		d.expect("a Admit")
		c.calls()
		c.expect(t, nil, []types.UID{"b"})

		c.set(func() { c.answer = errors.New("busy") })
		d.queue.Submit(claiming("c", "cpu=1"), false)
		d.expect("c Wait: WaitingForResourceDriver: " + prepareFailed)
		time.Sleep(time.Minute)
		d.expect("c Reject: UnexpectedAdmissionError: Allocate failed due to " + prepareFailed +
			", which is unexpected")
		c.calls()
		c.expect(t, nil, []types.UID{"c"})
	})
}

// A pod whose claim was made again, after it was given its place, is decided on with the new one.
func TestResourceClaimIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		c.takes = 100 * time.Millisecond
		d.queue.Submit(claiming("a", "cpu=2"), false)
		synctest.Wait()
		c.set(func() { c.again = "-2" })
		time.Sleep(3 * c.takes)
		d.expect("a Admit")
		held := d.store.State().Pods["a"].Containers["main"].Claims()
		if len(held) != 1 || held[0].UID != "claim-a-2" {
			t.Errorf("recorded is %v", held)
		}
		c.expect(t, []types.UID{"a"}, nil)
	})
}

// A driver that takes its time is named, and its call is ended when the pod goes.
func TestResourceDriverIsSlow(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		c.takes = time.Hour
		d.queue.Submit(claiming("a", "cpu=4"), false)
		time.Sleep(time.Second)
		d.expect("a Wait: WaitingForResourceDriver: no answer to NodePrepareResources yet from driver " +
			"gpu.example.com; it has 45s for that")
		d.queue.Submit(claiming("b", "cpu=1"), false)
		c.set(func() { c.takes = 0 })
		d.queue.Submit(claiming("c", "cpu=1"), false)
		synctest.Wait()
		d.queue.Leaving("a", false)
		d.queue.Release("a")
		synctest.Wait()
		if n := d.released.Load(); n != 1 {
			t.Errorf("%d pods are released", n)
		}
	})
}

// A pod that runs keeps what it has. The claims of one that another agent started are taken into the
// record; no driver is called for them that has prepared them.
func TestResourceClaimsOfRunningPods(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, _ := withClaims(t, dir, time.Minute)
		d.queue.Submit(claiming("a", "cpu=2"), false)
		d.expect("a Admit")
		d.stop()
		d, c := withClaims(t, dir, time.Minute)
		defer d.stop()
		before := d.store.State().Pods["a"]
		c.lacks["a"] = noDriver
		d.queue.Submit(claiming("a", "cpu=2"), true)
		d.queue.Submit(claiming("other", "cpu=2"), true)
		synctest.Wait()
		said := d.hear()
		if !slices.Contains(said, "a Admit") || !slices.Contains(said, "other Admit") {
			t.Errorf("said %q", said)
		}
		if c.calls(); d.store.State().Pods["a"].Version != before.Version {
			t.Error("the record of a pod that runs was written anew")
		}
		if claims := d.store.State().Pods["other"].Containers["main"].Claims(); len(claims) != 1 {
			t.Errorf("of the other pod is recorded %v", fmt.Sprint(claims))
		}
	})
}
