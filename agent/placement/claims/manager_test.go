package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a", "b")
		n.claim("a", []string{gpus, nics}, pod)
		n.claim("b", []string{gpus}, pod)
		n.Begin(pod)
		n.Look(t.Context(), pod)
		uses, lack := n.Uses(pod)
		if len(uses) != 2 || lack != (claim.Lack{}) || uses[0].UID != "uid-a" ||
			uses[0].Devices[1].Driver != nics {
			t.Errorf("%+v, %+v", uses, lack)
		}
		n.expect(t, "changed")
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.End(pod.UID)
		n.expect(t, "prepare gpu a,b", "prepare nic a")
		n.expectStages(t, "a[p] gpu=Prepared nic=Prepared; b[p] gpu=Prepared")
		if err := n.Prepare(t.Context(), pod); err != nil || n.reads != 2 {
			t.Errorf("prepared again: %v, %d reads", err, n.reads)
		}
		n.expect(t)
		ids, err := n.CDI(t.Context(), pod, "main")
		want := []string{gpus + "/dev=uid-a", nics + "/dev=uid-a", gpus + "/dev=uid-b"}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("CDI ids %q, %v", ids, err)
		}
		if got := n.Prepared(pod.UID); len(got) != 2 || len(got[0].Devices) != 2 ||
			got[0].Devices[0].Driver != gpus || got[1].Devices[0].Name != "dev-b" {
			t.Errorf("prepared are %+v", got)
		}
		if n.Held(pod.UID) == nil {
			t.Error("it holds nothing")
		}
		if err := n.Unprepare(t.Context(), pod.UID); err != nil || n.Held(pod.UID) != nil {
			t.Errorf("%v, %v", err, n.Held(pod.UID))
		}
		n.expect(t, "unprepare gpu a,b", "unprepare nic a", "settled uid-p")
		n.expectStages(t, "")
		n.Release(pod.UID)
		n.expect(t)
	})
}

// A claim that was made again since it was read is not prepared for who asks for the old one, and is
// known from then on.
func TestReplacedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.claim("a", []string{gpus}, pod)
		n.Begin(pod)
		n.Look(t.Context(), pod)
		n.expect(t, "changed")
		n.set(func() { n.claims["a"].UID = "new" })
		time.Sleep(fresh + time.Second)
		err := n.Prepare(t.Context(), pod, "uid-a")
		if !errors.Is(err, claim.ErrReplaced) {
			t.Errorf("the old one: %v", err)
		}
		n.expect(t, "changed")
		if uses, lack := n.Uses(pod); lack != (claim.Lack{}) || len(uses) != 1 || uses[0].UID != "new" {
			t.Errorf("the pod uses %+v, %+v", uses, lack)
		}
		if err := n.Prepare(t.Context(), pod, "new"); err != nil {
			t.Error(err)
		}
		n.End(pod.UID)
		n.expect(t, "prepare gpu a")
	})
}

// A pod that waits hears that another pod's start has prepared the claim that both use.
func TestSharedClaimIsNewsToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a"), n.pod("q", "a")
		n.claim("a", []string{gpus}, p, q)
		n.set(func() { n.fail[gpus] = errFake })
		n.Begin(p)
		if err := n.Prepare(t.Context(), p); err == nil {
			t.Fatal("prepared by a driver that fails")
		}
		n.expect(t, "changed", "prepare gpu a")
		n.set(func() { delete(n.fail, gpus) })
		if err := n.Prepare(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "prepare gpu a", "changed")
		if uses, lack := n.Uses(p); lack != (claim.Lack{}) || len(uses) != 1 {
			t.Errorf("%+v, %+v", uses, lack)
		}
	})
}

// A pod that ends is listed with the devices of a driver that has not unprepared them.
func TestDevicesOfAPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.claim("a", []string{gpus, nics}, pod)
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.set(func() { n.fail[nics] = errFake })
		if err := n.Unprepare(t.Context(), pod.UID); err == nil {
			t.Error("it is unprepared without its driver")
		}
		synctest.Wait()
		if got := n.Prepared(pod.UID); len(got) != 1 || len(got[0].Devices) != 1 ||
			got[0].Devices[0].Driver != nics {
			t.Errorf("listed are %+v", got)
		}
		if _, err := n.CDI(t.Context(), pod, "main"); err == nil {
			t.Error("its devices reach another container")
		}
	})
}

// Reasons for a wait, in the words of the kubelet's errors.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.usable.Delete(gpus)
		n.Begin(pod)
		for _, step := range []struct {
			change func()
			want   claim.Lack
		}{
			{func() {}, claim.Lack{Reason: claim.ReasonWaitClaim, Why: `fetch ResourceClaim a: ` +
				`resourceclaims.resource.k8s.io "a" not found`}},
			{func() { n.claim("a", []string{gpus}) }, claim.Lack{Reason: claim.ReasonWaitClaim,
				Why: "pod p (uid-p) is not allowed to use ResourceClaim a (uid-a)"}},
			{func() { n.claim("a", []string{gpus}, pod) }, claim.Lack{Reason: claim.ReasonWaitDriver,
				Why: "DRA driver gpu.example.com is not registered, and ResourceClaim a has devices of it"}},
			{func() {
				n.set(func() { n.usable.Insert(gpus) })
				n.change <- struct{}{}
			}, claim.Lack{}},
		} {
			step.change()
			time.Sleep(31 * time.Second)
			n.expect(t, "changed")
			if _, lack := n.Uses(pod); lack != step.want {
				t.Errorf("lacks %+v, want %+v", lack, step.want)
			}
		}
		n.End(pod.UID)
		if _, lack := n.Uses(pod); lack.Reason != claim.ReasonWaitClaim {
			t.Errorf("of a pod that is not followed: %+v", lack)
		}
		if uses, lack := n.Uses(n.pod("without")); uses != nil || lack != (claim.Lack{}) {
			t.Errorf("of a pod without claims: %v, %+v", uses, lack)
		}
	})
}

// A claim that is there in a moment is waited for before anything is said.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.Begin(pod)
		time.AfterFunc(150*time.Millisecond, func() { n.claim("a", []string{gpus}, pod) })
		began := time.Now()
		n.Look(t.Context(), pod)
		if _, lack := n.Uses(pod); lack != (claim.Lack{}) || time.Since(began) > time.Second/2 {
			t.Errorf("after %v it lacks %+v", time.Since(began), lack)
		}
		other := n.pod("other", "b")
		n.Begin(other)
		began = time.Now()
		n.Look(t.Context(), other)
		if took := time.Since(began); took != lookAgain {
			t.Errorf("it looked for %v for a claim that is not there", took)
		}
		n.End(pod.UID)
		n.End(other.UID)
	})
}

// A driver that is not there is not told, and nobody waits for it to undo what it never did.
func TestNeverSentNeedsNoDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a", "b")
		n.claim("a", []string{gpus}, pod)
		n.claim("b", []string{nics}, pod)
		n.usable.Delete(nics)
		err := n.Prepare(t.Context(), pod)
		if !errors.Is(err, dra.ErrNotRegistered) || err.Error() !=
			"DRA driver nic.example.com is not registered" {
			t.Errorf("error %v", err)
		}
		n.expect(t)
		n.expectStages(t, "")
		// It goes between the look and the call.
		n.usable.Insert(nics)
		n.fail[nics] = fmt.Errorf("gone: %w", dra.ErrNotRegistered)
		if err := n.Prepare(t.Context(), pod); !errors.Is(err, dra.ErrNotRegistered) {
			t.Errorf("error %v", err)
		}
		n.expect(t, "prepare gpu a", "prepare nic b")
		n.expectStages(t, "a[p] gpu=Prepared; b[p] nic=")
		n.usable.Delete(nics)
		if err := n.Unprepare(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
		n.expect(t, "unprepare gpu a", "settled uid-p")
	})
}

// A driver that fails or is away holds the pod, is tried again, and no other driver is called twice.
func TestUnprepareIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a", "b")
		n.claim("a", []string{gpus, nics}, pod)
		n.claim("b", []string{gpus}, pod)
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "prepare gpu a,b", "prepare nic a")
		n.set(func() { n.fail[gpus+" a"] = errFake; n.usable.Delete(nics) })
		err := n.Unprepare(t.Context(), pod.UID)
		if err == nil || n.Held(pod.UID) == nil {
			t.Errorf("%v, %v", err, n.Held(pod.UID))
		}
		n.expect(t, "unprepare gpu a,b")
		n.expectStages(t, "a[p!] gpu=Unpreparing nic=Prepared")
		n.restart(t)
		time.Sleep(time.Second)
		n.expect(t, "unprepare gpu a")
		time.Sleep(2 * time.Second)
		n.expect(t, "unprepare gpu a")
		n.set(func() { delete(n.fail, gpus+" a"); n.usable.Insert(nics) })
		n.change <- struct{}{}
		n.expect(t, "changed", "unprepare nic a", "unprepare gpu a", "settled uid-p")
	})
}

// Whoever uses a claim beside others ends at once; the last one waits for the drivers.
func TestSharedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a"), n.pod("q", "a")
		n.claim("a", []string{gpus}, p, q)
		n.hang[gpus] = make(chan struct{})
		errs := make(chan error, 2)
		go func() { errs <- n.Prepare(t.Context(), p) }()
		go func() { errs <- n.Prepare(t.Context(), q) }()
		n.expect(t, "prepare gpu a") // once
		close(n.hang[gpus])
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Error(err)
		}
		n.expect(t)
		if err := n.Unprepare(t.Context(), p.UID); err != nil {
			t.Error(err)
		}
		n.expect(t, "settled uid-p")
		n.set(func() { n.hang[gpus] = make(chan struct{}) })
		n.Release(q.UID)
		n.expect(t, "unprepare gpu a")
		n.expectStages(t, "a[q!] gpu=Unpreparing")
		want := "ResourceClaim a is being unprepared"
		if err := n.Prepare(t.Context(), p); err == nil || err.Error() != want {
			t.Errorf("while it is unprepared: %v", err)
		}
		n.set(func() { close(n.hang[gpus]); delete(n.hang, gpus) })
		n.expect(t, "settled uid-q")
		if err := n.Prepare(t.Context(), p); err != nil {
			t.Error(err)
		}
		n.expect(t, "prepare gpu a")
	})
}

// A new claim of the same name waits for the old one's end.
func TestOldClaimOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a"), n.pod("q", "a")
		n.claim("a", []string{gpus}, p)
		if err := n.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		n.claim("a", []string{gpus}, q)
		n.claims["a"].UID = "uid-other"
		want := "old ResourceClaim with same name a and different UID " +
			"uid-a still exists (previous pod force-deleted?!)"
		if err := n.Prepare(t.Context(), q); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		n.set(func() { n.active.Delete(p.UID) })
		time.Sleep(2 * time.Minute)
		if err := n.Prepare(t.Context(), q); err != nil {
			t.Error(err)
		}
		n.expect(t, "prepare gpu a", "unprepare gpu a", "settled uid-p", "prepare gpu a")
	})
}

// A pod that ends while its claims are prepared leaves nothing prepared, wherever that stands.
func TestReleasedWhilePrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.claim("a", []string{gpus}, pod)
		n.hang[gpus] = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() { errs <- n.Prepare(ctx, pod) }()
		n.expect(t, "prepare gpu a")
		n.Release(pod.UID)
		n.expect(t) // the call is under way
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		n.set(func() { close(n.hang[gpus]); delete(n.hang, gpus) })
		n.expect(t, "unprepare gpu a", "settled uid-p")
		n.expectStages(t, "")
	})
}

// After a restart running pods are believed; after a boot drivers are asked again for pods that
// start, and undo what others had. Pods that vanished meanwhile are released once all are known.
func TestRestartAndReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a"), n.pod("q", "b")
		n.claim("a", []string{gpus}, p)
		n.claim("b", []string{gpus}, q)
		if err := errors.Join(n.Prepare(t.Context(), p), n.Prepare(t.Context(), q)); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "prepare gpu a", "prepare gpu b")
		n.usable.Delete(gpus) // nor is there a need for it
		n.claims = nil
		n.restart(t)
		if uses, lack := n.Uses(p); len(uses) != 1 || len(uses[0].Devices) != 1 ||
			lack != (claim.Lack{}) || n.Prepare(t.Context(), p) != nil {
			t.Errorf("after a restart %+v, %+v", uses, lack)
		}
		if ids, err := n.CDI(t.Context(), p, "main"); len(ids) != 1 || err != nil {
			t.Errorf("after a restart %v, %v", ids, err)
		}
		n.bootID, n.known = "boot-2", false
		n.active.Delete(q.UID)
		n.usable.Insert(gpus)
		n.claimsAgain(p)
		n.restart(t)
		n.expectStages(t, "a[p] gpu=Preparing; b[q] gpu=Preparing")
		time.Sleep(5 * time.Minute)
		n.expect(t)
		if ids, err := n.CDI(t.Context(), p, "main"); len(ids) != 1 || err != nil {
			t.Errorf("in another boot %v, %v", ids, err)
		}
		n.expect(t, "prepare gpu a")
		n.set(func() { n.known = true })
		time.Sleep(time.Minute)
		n.expect(t, "unprepare gpu b", "settled uid-q")
		n.expectStages(t, "a[p] gpu=Prepared")
	})
}
