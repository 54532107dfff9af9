package podworker

import (
	"testing"
	"time"
)

// An exit that asks for it ends all containers at once and removes what the runtime has of them, but
// not their logs, the one that asked last. Then all begins anew in the same sandbox, with the next
// attempts; ephemeral containers are as they were.
func TestRestartAll(t *testing.T) {
	ask := func(w *world) { restartsAllAt(&w.pod.Spec.Containers[0], 42) }
	programs := map[string][]run{
		"init": {{time.Second, 0}}, "web": {{5 * time.Second, 42}, {}},
	}
	tell(t, []story{
		{
			name: "all containers", pod: "Never init side~ | web db", programs: programs,
			play:  func(w *world) { ask(w); w.until(time.Hour) },
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				1s SyncPod: StartContainer side #0
				1s SyncPod: StartContainer web #0
				1s SyncPod: StartContainer db #0
				6s SyncPod: StopContainers c3,c5 in 2s
				6s SyncPod: RemoveContainers c2,c3,c5 but logs
				6s SyncPod: RemoveContainers c4 but logs
				6s SyncPod: StartContainer init #1
				7s SyncPod: StartContainer side #1
				7s SyncPod: StartContainer web #1
				7s SyncPod: StartContainer db #1`,
		},
		{
			name: "a later run of the agent goes on with it", pod: "Never init | web db",
			programs: programs,
			play: func(w *world) {
				ask(w)
				w.fault = func(a Action) (error, bool) {
					if a.Kind == RemoveContainers {
						w.memory = newMemory(nil)
					}
					return nil, true
				}
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				1s SyncPod: StartContainer web #0
				1s SyncPod: StartContainer db #0
				6s SyncPod: StopContainers c4 in 2s
				6s SyncPod: RemoveContainers c2,c4 but logs
				6s SyncPod: RemoveContainers c3 but logs
				6s SyncPod: StartContainer init #1
				7s SyncPod: StartContainer web #1
				7s SyncPod: StartContainer db #1`,
		},
		{
			name: "one after the other waits as after crashes", pod: "Always web db",
			programs: map[string][]run{"web": {{time.Second, 42}, {time.Second, 42}, {}}},
			play:     func(w *world) { ask(w); w.until(time.Hour) },
			state:    SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				1s SyncPod: StopContainers c3 in 2s
				1s SyncPod: RemoveContainers c3 but logs
				1s SyncPod: RemoveContainers c2 but logs
				1s SyncPod: StartContainer web #1
				1s SyncPod: StartContainer db #1
				2s SyncPod: StopContainers c5 in 2s
				2s SyncPod: RemoveContainers c5 but logs
				2s SyncPod: RemoveContainers c4 but logs
				11s SyncPod: StartContainer web #2
				11s SyncPod: StartContainer db #2`,
		},
	})
}

// Attempts go on counting when the runtime has lost its records, and no container that ran once only
// is started again.
func TestAttemptsOfLostRecords(t *testing.T) {
	tell(t, []story{{
		name: "cleaned", pod: "Always web",
		play: func(w *world) {
			w.want.Pod = debugged(w.pod, "debug")
			w.until(time.Minute)
			w.seen.Containers = nil
			w.until(time.Hour)
		},
		state: SyncPod,
		want: `
			0s SyncPod: CreateSandbox #0
			0s SyncPod: StartContainer web #0
			0s SyncPod: StartContainer debug #0
			1m0s SyncPod: StartContainer web #1`,
	}})
}
