package podstatus

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/podtest"
)

// A static pod begins with what an earlier run of the agent told of it. What is known of that only
// later is taken later, once.
func TestRecall(t *testing.T) {
	known := map[types.UID]v1.PodStatus{}
	asked := map[types.UID]int{}
	s := New(Config{Recall: func(pod *v1.Pod) v1.PodStatus {
		asked[pod.UID]++
		return known[pod.UID]
	}})
	runs := v1.PodStatus{Phase: v1.PodRunning, StartTime: &metav1.Time{Time: time.Unix(1, 0)}}
	known["early"], known["api"] = runs, runs
	for _, uid := range []string{"early", "late", "new"} {
		s.write(pod.StatusPending, named(uid, uid, podtest.Source("file")), "")
	}
	s.write(pod.StatusPending, named("other", "other"), "")
	known["late"], known["other"] = runs, runs
	for uid, want := range map[types.UID]v1.PodPhase{
		"early": v1.PodRunning, "late": v1.PodPending, "new": v1.PodPending,
	} {
		if got := s.Status(uid).Phase; got != want {
			t.Errorf("%s is %s at first, want %s", uid, got, want)
		}
	}
	if news := s.RecallAgain(); !slices.Equal(news, []types.UID{"late"}) {
		t.Errorf("there is news of %q", news)
	}
	if got := s.Status("late").Phase; got != v1.PodRunning {
		t.Errorf("what is known late says %s", got)
	}
	if got := s.Status("other").Phase; got != v1.PodPending {
		t.Errorf("a pod that is not static is %s", got)
	}
	if news := s.RecallAgain(); len(news) > 0 || asked["late"] != 3 || asked["early"] != 1 {
		t.Errorf("then there is news of %q; asked %v", news, asked)
	}
}

// What an earlier run told may become known just when a pod begins, after the store asked for it and
// before the pod is among those asked for again.
func TestRecalledMeanwhile(t *testing.T) {
	var s *Store
	var known v1.PodStatus
	s = New(Config{Recall: func(*v1.Pod) v1.PodStatus {
		if was := known; was.Phase != "" {
			known = v1.PodStatus{}
			return was
		}
		if len(s.Specs()) == 0 {
			known.Phase = v1.PodRunning
			if news := s.RecallAgain(); len(news) > 0 {
				t.Errorf("there is news of %q, which has not begun", news)
			}
		}
		return v1.PodStatus{}
	}})
	s.write(pod.StatusPending, named("u", "a", podtest.Source("file")), "")
	if got := s.Status("u").Phase; got != v1.PodRunning {
		t.Errorf("the pod is %s, and was told to run", got)
	}
}

// A pod that is desired anew begins to count where its earlier life ended; another one of that UID
// does not.
func TestDesiredAnew(t *testing.T) {
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 143}}
	s := New(Config{Recall: func(*v1.Pod) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodFailed, StartTime: &metav1.Time{Time: time.Unix(1, 0)},
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: ended, RestartCount: 2}}}
	}})
	p := named("u", "a", podtest.Phase(v1.PodPending)) // as manifests are read
	s.write(pod.StatusPending, p, "")
	for range 2 {
		s.write(pod.StatusPending, p, "")
		got := s.Status("u")
		if c := got.ContainerStatuses[0]; got.Phase != v1.PodPending || c.RestartCount != 2 ||
			c.State.Waiting == nil || c.LastTerminationState != ended || status.Attempt(got, "main") != 3 {
			t.Errorf("the same pod anew: %+v", got)
		}
	}
	s.cfg.Recall = func(*v1.Pod) v1.PodStatus { return v1.PodStatus{} }
	s.write(pod.StatusPending, named("u", "b"), "")
	if c := s.Status("u").ContainerStatuses[0]; c.RestartCount != 0 ||
		c.LastTerminationState.Terminated != nil {
		t.Errorf("another pod: %+v", c)
	}
}
