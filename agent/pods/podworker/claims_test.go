package podworker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
)

// A pod's claims are released once, after all that runs has ended and before anything is removed,
// and what keeps them holds up the pod's end and nothing else.
func TestClaimStories(t *testing.T) {
	uses := func(play func(*world)) func(*world) {
		return func(w *world) {
			w.uses = true
			play(w)
		}
	}
	refuses := func(w *world, until time.Duration) {
		w.fault = func(a Action) (error, bool) {
			if a.Kind == ReleaseClaims && w.now.Before(epoch.Add(until)) {
				return errors.New("DRA driver a.example.com is not registered"), false
			}
			return nil, true
		}
	}
	tell(t, []story{
		{
			name:     "a pod that ends by itself",
			pod:      "Never job",
			programs: map[string][]run{"job": {{time.Second, 0}}},
			play:     uses(func(w *world) { w.until(time.Hour) }),
			state:    Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer job #0
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: ReleaseClaims
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "a driver that is away",
			pod:  "Always web",
			play: uses(func(w *world) {
				refuses(w, 25*time.Second)
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: time.Second, Remove: true}
				w.until(time.Hour)
			}),
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c2 in 2s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: ReleaseClaims
				11s TerminatedPod: ReleaseClaims
				21s TerminatedPod: ReleaseClaims
				31s TerminatedPod: ReleaseClaims
				31s TerminatedPod: CleanUp
				31s TerminatedPod: RemovePod`,
		},
		{
			name: "a driver that is to be asked again soon",
			pod:  "Always web",
			play: uses(func(w *world) {
				w.fault = func(a Action) (error, bool) {
					if until := epoch.Add(4 * time.Second); a.Kind == ReleaseClaims && w.now.Before(until) {
						return errors.Join(errors.New("busy"), &cri.PausedError{
							Err: errors.New("it failed"), Until: w.now.Add(2 * time.Second)}), false
					}
					return nil, true
				}
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: time.Second, Remove: true}
				w.until(time.Hour)
			}),
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c2 in 2s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: ReleaseClaims
				3s TerminatedPod: ReleaseClaims
				5s TerminatedPod: ReleaseClaims
				5s TerminatedPod: CleanUp
				5s TerminatedPod: RemovePod`,
		},
		{
			name: "claims that are gone before the next try",
			pod:  "Always web",
			play: uses(func(w *world) {
				refuses(w, time.Hour)
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: time.Second}
				w.until(2 * time.Second)
				w.holds = false
				w.until(time.Hour)
			}),
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c2 in 2s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: ReleaseClaims
				2s TerminatedPod: CleanUp`,
		},
		{
			name: "a sandbox that dies is made anew with the claims that the pod has",
			pod:  "Always web",
			play: uses(func(w *world) {
				w.until(time.Second)
				w.loseSandbox()
				w.until(time.Minute)
			}),
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s SyncPod: CreateSandbox #1
				1s SyncPod: StartContainer web #1`,
		},
		{
			name: "claims of a pod of which nothing ever ran",
			pod:  "Always web",
			play: func(w *world) {
				w.holds = true
				w.want.Stop = &Stop{Grace: time.Second, Remove: true}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s TerminatedPod: ReleaseClaims
				0s TerminatedPod: CleanUp`,
		},
	})
}

// The worker asks whether its pod holds claims, and the pod has not ended before it holds none.
func TestWorkersReleaseClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["job"] = []run{{time.Second, 0}}
		n.claimants = map[types.UID]bool{"a": true}
		n.before = func(_ context.Context, a Action) error {
			if a.Kind != ReleaseClaims {
				return nil
			}
			return errors.New("the driver is away")
		}
		pod := podOf("a", "Never job")
		n.Update(Desired{Pod: pod})
		other := podOf("b", "Never job")
		other.Name = "other" // it does not wait for the first one
		n.Update(Desired{Pod: other})
		n.at(2 * time.Second)
		r := n.reports["a"]
		if r.Ended() || r.Decision.State != TerminatedPod ||
			r.Decision.Problem != (status.Reason{Reason: ReasonUnprepare,
				Message: "the driver is away"}) {
			t.Errorf("reported is %+v", r.Decision)
		}
		if r := n.reports["b"]; !r.Ended() {
			t.Errorf("a pod without claims is in %s", r.Decision.State)
		}
		n.mu.Lock()
		n.claimants["a"] = false // somebody else had them released
		n.mu.Unlock()
		n.Wake("a")
		n.at(3 * time.Second)
		if r := n.reports["a"]; !r.Ended() {
			t.Errorf("in the end it is in %s", r.Decision.State)
		}
	})
}
