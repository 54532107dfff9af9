package podworker

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
)

func hooked(list []v1.Container, names ...string) {
	for i := range list {
		for _, name := range names {
			if list[i].Name == name {
				list[i].Lifecycle = &v1.Lifecycle{
					PostStart: &v1.LifecycleHandler{}, PreStop: &v1.LifecycleHandler{},
				}
			}
		}
	}
}

func TestHooks(t *testing.T) {
	tell(t, []story{
		{
			name: "what comes after a container waits for its postStart hook",
			pod:  "Always side~ | web db",
			play: func(w *world) {
				hooked(w.pod.Spec.InitContainers, "side")
				hooked(w.pod.Spec.Containers, "web")
				w.until(time.Minute)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer side #0
				0s SyncPod: PostStart side c2
				0s SyncPod: StartContainer web #0
				0s SyncPod: PostStart web c3
				0s SyncPod: StartContainer db #0`,
		},
		{
			name: "a container whose postStart hook fails is stopped, and started after its back-off",
			pod:  "Always web",
			play: func(w *world) {
				hooked(w.pod.Spec.Containers, "web")
				w.hook = &cri.StartError{Reason: cri.ReasonPostStartHook, Message: "no"}
				w.until(5 * time.Second)
				w.hook = nil
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: PostStart web c2
				0s SyncPod: StopContainers web c2 hooks c2 in 30s
				0s SyncPod: StartContainer web #1
				0s SyncPod: PostStart web c3
				0s SyncPod: StopContainers web c3 hooks c3 in 30s
				10s SyncPod: StartContainer web #2
				10s SyncPod: PostStart web c4
				10s SyncPod: RemoveContainers c2`,
		},
		{
			name: "a later run of the agent runs the hook that an earlier one left, and no other",
			pod:  "Always web db",
			play: func(w *world) {
				hooked(w.pod.Spec.Containers, "web", "db")
				w.fault = func(a Action) (error, bool) {
					if a.Kind != PostStart || a.Container != "db" {
						return nil, true
					}
					w.fault, w.memory = nil, newMemory(map[string]uint32{"db": 0})
					return errors.New("killed"), false
				}
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: PostStart web c2
				0s SyncPod: StartContainer db #0
				0s SyncPod: PostStart db c3
				0s SyncPod: PostStart db c3`,
		},
		{
			name: "a container that exits during its postStart hook is not waited for",
			pod:  "Never web", programs: map[string][]run{"web": {{time.Second, 0}}},
			play: func(w *world) {
				hooked(w.pod.Spec.Containers, "web")
				w.fault = func(a Action) (error, bool) {
					if a.Kind != PostStart {
						return nil, true
					}
					w.now = w.now.Add(2 * time.Second)
					return errors.New("it runs no more"), false
				}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: PostStart web c2
				2s TerminatingPod: StopSandboxes s1
				2s TerminatedPod: CleanUp`,
		},
	})
}

// While its hook is run a container counts as one that does not run yet, and when that has failed the
// status says why.
func TestHookInStatus(t *testing.T) {
	w := newWorld(makePod("Always web"))
	hooked(w.pod.Spec.Containers, "web")
	w.round()
	w.round() // it runs
	w.hook = &cri.StartError{Reason: cri.ReasonPostStartHook, Message: "no luck"}
	w.round()
	look := func() (v1.PodPhase, string) {
		s := status.Generate(status.Input{Pod: w.pod, Now: w.now, Facts: status.Facts{
			Observed: w.observe(), Waiting: w.last.Waiting}})
		c := s.ContainerStatuses[0]
		if c.Ready || *c.Started || c.State.Waiting == nil {
			return s.Phase, "not waiting"
		}
		return s.Phase, c.State.Waiting.Reason + " " + c.State.Waiting.Message
	}
	if phase, got := look(); phase != v1.PodPending || got != "ContainerCreating " {
		t.Errorf("during the hook: %s, %q", phase, got)
	}
	w.fault = func(Action) (error, bool) { return errors.New("not now"), false }
	w.round()
	if _, got := look(); got != "PostStartHookError no luck" {
		t.Errorf("when it failed: %q", got)
	}
	if !strings.Contains(w.log[len(w.log)-1], "StopContainers web") {
		t.Errorf("log %q", w.log)
	}
}
