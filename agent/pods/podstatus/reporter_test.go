package podstatus

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// The next attempt at a container comes after those of its status and of its logs.
func TestNextAttempt(t *testing.T) {
	p := named("u", "p")
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", RestartCount: 2,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	s := New(Config{Recall: func(*v1.Pod) v1.PodStatus { return p.Status }})
	s.write(pod.StatusPending, p, "")
	root := t.TempDir()
	dir := filepath.Join(cri.PodLogDir(root, p), "main")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		log, dir string
		want     uint32
	}{{"", root, 3}, {"1.log", root, 3}, {"6.log", root, 7}, {"", "", 3}} {
		if step.log != "" {
			if err := os.WriteFile(filepath.Join(dir, step.log), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := Reporter{Statuses: s, LogsDir: step.dir}
		if got := r.NextAttempt(p, "main"); got != step.want {
			t.Errorf("logs to %q in %q: attempt %d, want %d", step.log, step.dir, got, step.want)
		}
	}
}

// exited returns what a worker reports of a pod whose container has exited for good.
func exited() (*Store, podworker.Report) {
	p := named("u", "p")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	s := New(Config{})
	s.write(pod.StatusPending, p, "")
	return s, podworker.Report{Pod: p, Observed: cri.Pod{
		Containers: []cri.Container{{Name: "main", ID: "c", State: cri.ContainerExited,
			Exit: cri.Exit{Message: "bye"}}}},
		Decision: podworker.Decision{State: podworker.TerminatedPod}}
}

// A pod that holds resource claims is not reported to have ended.
func TestClaimsHoldTheEnd(t *testing.T) {
	s, round := exited()
	for _, holds := range []bool{true, false} {
		round.Decision.Holds = holds
		got, ok := Reporter{Statuses: s}.Report(round)
		if ended := podspec.Ended(got.Phase); !ok || ended == holds {
			t.Errorf("with claims %t it is %s", holds, got.Phase)
		}
	}
}

// A pod that the node ends is not ready from the first look on; one that the API server wants deleted
// stays as it is.
func TestEndedByTheNode(t *testing.T) {
	for reason, want := range map[string]v1.ConditionStatus{
		"Evicted": v1.ConditionFalse, "": v1.ConditionTrue,
	} {
		p := named("u", "p")
		s := New(Config{})
		s.write(pod.StatusPending, p, "")
		round := podworker.Report{Pod: p, Stop: &podworker.Stop{Reason: reason}, Observed: cri.Pod{
			Sandboxes:  []cri.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
			Containers: []cri.Container{{Name: "main", ID: "c", SandboxID: "s", State: cri.ContainerRunning}},
		}, Decision: podworker.Decision{State: podworker.TerminatingPod}}
		got, _ := Reporter{Statuses: s}.Report(round)
		for _, c := range got.Conditions {
			if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && c.Status != want {
				t.Errorf("ended for %q it is %+v, want %s", reason, c, want)
			}
		}
	}
}

// The status of a pod that is to go says what keeps it; that of one that has ended and stays does not.
func TestKeptFromTheEnd(t *testing.T) {
	for _, removed := range []bool{true, false} {
		s, round := exited()
		round.Decision.Problem = status.Reason{Reason: "FailedKillPod", Message: "the driver is away"}
		want := ""
		if removed {
			round.Stop, want = &podworker.Stop{Remove: true}, "the driver is away"
		}
		if got, ok := (Reporter{Statuses: s}).Report(round); !ok || !podspec.Ended(got.Phase) || got.Message != want {
			t.Errorf("removed %t: it is %s with %q", removed, got.Phase, got.Message)
		}
	}
}
