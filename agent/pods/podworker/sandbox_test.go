package podworker

import (
	"testing"
	"time"

	"github.com/numalet/numalet/cri"
)

func TestSandboxStories(t *testing.T) {
	tell(t, []story{
		{
			name: "a lost sandbox is made again and init containers run again",
			pod:  "Always init | web", programs: map[string][]run{"init": {{time.Second, 0}}},
			play: func(w *world) {
				w.until(time.Minute)
				w.loseSandbox()
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				1s SyncPod: StartContainer web #0
				1m0s SyncPod: CreateSandbox #1
				1m0s SyncPod: StartContainer init #1
				1m1s SyncPod: StartContainer web #1`,
		},
		{
			name: "a pod whose cgroup is gone is stopped and made anew",
			pod:  "Always web",
			play: func(w *world) {
				w.until(time.Minute)
				w.lost = "its cgroup is gone"
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1m0s SyncPod: StopContainers c2 in 30s
				1m0s SyncPod: StopSandboxes s1
				1m0s SyncPod: CreateSandbox #1
				1m0s SyncPod: StartContainer web #1`,
		},
		{
			name: "a pod whose cgroup is gone and that is not to run twice has ended",
			pod:  "Never web",
			play: func(w *world) {
				w.until(time.Minute)
				w.lost = "its cgroup is gone"
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1m0s SyncPod: StopContainers c2 in 30s
				1m0s TerminatingPod: StopSandboxes s1
				1m0s TerminatedPod: CleanUp`,
		},
		{
			name: "dead sandboxes are removed once they have no record that is needed",
			pod:  "Always init | web", programs: map[string][]run{"init": {{time.Second, 0}}},
			play: func(w *world) {
				for range 2 {
					w.until(w.now.Sub(epoch) + time.Hour)
					w.loseSandbox()
				}
				w.until(3 * time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				1s SyncPod: StartContainer web #0
				1h0m0s SyncPod: CreateSandbox #1
				1h0m0s SyncPod: StartContainer init #1
				1h0m1s SyncPod: StartContainer web #1
				2h0m0s SyncPod: CreateSandbox #2
				2h0m0s SyncPod: StartContainer init #2
				2h0m0s SyncPod: RemoveContainers c2
				2h0m1s SyncPod: StartContainer web #2
				2h0m1s SyncPod: RemoveContainers c3
				2h0m1s SyncPod: RemoveSandboxes s1`,
		},
		{
			name: "sandboxes without an address have a back-off and do not pile up",
			pod:  "Always web",
			play: func(w *world) {
				w.noAddress = true
				w.until(3 * time.Minute)
				w.noAddress = false
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StopSandboxes s1
				0s SyncPod: CreateSandbox #1
				0s SyncPod: StopSandboxes s2
				10s SyncPod: CreateSandbox #2
				10s SyncPod: StopSandboxes s3
				10s SyncPod: RemoveSandboxes s1
				30s SyncPod: CreateSandbox #3
				30s SyncPod: StopSandboxes s4
				30s SyncPod: RemoveSandboxes s2
				1m10s SyncPod: CreateSandbox #4
				1m10s SyncPod: StopSandboxes s5
				1m10s SyncPod: RemoveSandboxes s3
				2m30s SyncPod: CreateSandbox #5
				2m30s SyncPod: StopSandboxes s6
				2m30s SyncPod: RemoveSandboxes s4
				5m10s SyncPod: CreateSandbox #6
				5m10s SyncPod: StartContainer web #0
				5m10s SyncPod: RemoveSandboxes s5`,
		},
		{
			name: "after a sandbox that lasted the back-off begins anew",
			pod:  "Always web",
			play: func(w *world) {
				w.noAddress = true
				w.until(time.Minute)
				w.noAddress = false
				w.until(time.Hour)
				w.eachSandbox(func(s *cri.Sandbox) { s.IPs = nil })
				w.noAddress, w.log = true, nil
				w.until(time.Hour + 15*time.Second)
			},
			state: SyncPod,
			want: `
				1h0m0s SyncPod: StopContainers c6 in 30s
				1h0m0s SyncPod: StopSandboxes s5
				1h0m0s SyncPod: CreateSandbox #5
				1h0m0s SyncPod: StopSandboxes s7
				1h0m0s SyncPod: RemoveSandboxes s4
				1h0m10s SyncPod: CreateSandbox #6
				1h0m10s SyncPod: StopSandboxes s8`,
		},
		{
			name: "a sandbox that lost its address is replaced with all that runs in it",
			pod:  "Always web",
			play: func(w *world) {
				w.until(time.Minute)
				w.eachSandbox(func(s *cri.Sandbox) { s.IPs = nil })
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1m0s SyncPod: StopContainers c2 in 30s
				1m0s SyncPod: StopSandboxes s1
				1m0s SyncPod: CreateSandbox #1
				1m0s SyncPod: StartContainer web #1`,
		},
		{
			name: "under Never a lost sandbox is the pod's end",
			pod:  "Never one two | web", programs: map[string][]run{"one": {{time.Second, 0}}},
			play: func(w *world) {
				w.until(2 * time.Second)
				w.loseSandbox()
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer one #0
				1s SyncPod: StartContainer two #0
				2s TerminatedPod: StopSandboxes s1
				2s TerminatedPod: CleanUp`,
		},
	})
}
