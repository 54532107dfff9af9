package podworker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

func debugged(pod *v1.Pod, names ...string) *v1.Pod {
	out := pod.DeepCopy()
	for _, name := range names {
		podtest.Containers(name + "?")(out)
	}
	return out
}

// An ephemeral container is started once, whatever becomes of it, after all else, also while an init
// container holds the others up. It keeps no pod from its end.
func TestEphemeral(t *testing.T) {
	tell(t, []story{
		{
			name:     "added to a pod that runs",
			pod:      "Always web",
			programs: map[string][]run{"debug": {{time.Second, 1}}},
			play: func(w *world) {
				w.until(time.Minute)
				w.want.Pod = debugged(w.pod, "debug")
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1m0s SyncPod: StartContainer debug #0`,
		},
		{
			name:     "beside an init container that goes on",
			pod:      "Never init | web",
			programs: map[string][]run{"init": {{time.Minute, 0}}, "web": {{time.Minute, 0}}},
			play: func(w *world) {
				w.want.Pod = debugged(w.pod, "debug")
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				0s SyncPod: StartContainer debug #0
				1m0s SyncPod: StartContainer web #0
				2m0s TerminatingPod: StopContainers c3 in 30s
				2m0s TerminatingPod: StopSandboxes s1
				2m0s TerminatedPod: CleanUp`,
		},
	})
}
