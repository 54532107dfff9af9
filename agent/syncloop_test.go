package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
)

// idleLoop is a loop whose queue and workers only take notes: nothing of it runs.
func idleLoop(observed cri.Pod) *loop {
	return &loop{
		pods:    newPods(status.Node{}),
		last:    func(types.UID) (cri.Pod, bool) { return observed, len(observed.Sandboxes) > 0 },
		queue:   admission.New(admission.Config{}),
		workers: podworker.New(podworker.Config{}),
	}
}

func examplePod() *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	pod.UID, pod.Namespace, pod.Name = "uid-1", "default", "a"
	return pod
}

// A pod that is withdrawn before admission spoke is forgotten when the runtime has nothing of it,
// and stopped first when it runs from before: its CPUs and devices are in use.
func TestWithdrawnBeforeItWasDecided(t *testing.T) {
	for name, test := range map[string]struct {
		observed cri.Pod
		known    bool
		workers  []types.UID
	}{
		"new": {},
		"runs from before": {cri.Pod{Sandboxes: []cri.Sandbox{{Ready: true}}}, true,
			[]types.UID{"uid-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := idleLoop(test.observed)
			l.desire(examplePod())
			l.undesire(examplePod())
			if l.pods.known("uid-1") != test.known {
				t.Errorf("known: %v, want %v", !test.known, test.known)
			}
			if got := l.workers.Known(); !slices.Equal(got, test.workers) {
				t.Errorf("workers of %v, want %v", got, test.workers)
			}
			l.undesire(examplePod())
			if l.pods.known("uid-1") != test.known {
				t.Errorf("withdrawn twice, known: %v, want %v", !test.known, test.known)
			}
		})
	}
}

// A pod that comes while what an earlier run of the agent left of it is being removed is decided on
// again after that: its worker takes no update before.
func TestDesiredWhileItsRemainsAreRemoved(t *testing.T) {
	l := idleLoop(cri.Pod{})
	l.workers.Update(podworker.Desired{
		Pod: examplePod(), Stop: &podworker.Stop{Orphan: true, Remove: true},
	})
	l.desire(examplePod())
	l.decided(t.Context(), admission.Result{Pod: examplePod(), Outcome: admission.Admit})
	l.end(ending{uid: "uid-1", gone: true})
	r, known := l.pods.get("uid-1")
	if !known || r.stopping || r.outcome != "" {
		t.Errorf("known: %v, record %+v", known, r)
	}
}

// What there is not to say is left out of the log.
func TestSaidInTheLog(t *testing.T) {
	result := admission.Result{Pod: &v1.Pod{}, Reason: "WaitingForDevicePlugin", Message: "none"}
	if values := said(result); len(values) != 6 || slices.Contains(values, any("explanation")) {
		t.Errorf("without an explanation the log has %v", values)
	}
	result.Explained = "1 asked for"
	if values := said(result); len(values) != 8 || values[6] != "explanation" ||
		values[7] != "1 asked for" {
		t.Errorf("with an explanation the log has %v", values)
	}
}
