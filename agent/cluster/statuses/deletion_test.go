package statuses

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
)

// An API server that is interrupted during a final deletion leaves the pod marked. It is then asked
// again, whoever asked first.
func TestHalfDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t)
		for _, name := range []string{"a", "b"} {
			if _, err := s.api.create(examplePod(name)); err != nil {
				t.Fatal(err)
			}
		}
		s.api.mark(s.api.pods["a"]) // by another client, with force
		s.api.wantsDeleted(s.api.pods["b"])
		s.api.halfway = true
		w.Saw(s.set())
		for _, name := range []string{"a", "b"} {
			s.says(w, name, v1.PodStatus{Phase: v1.PodSucceeded}, true)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			if got, _ := s.pod(name); got == nil || *got.DeletionGracePeriodSeconds != 0 {
				t.Fatalf("pod %s is %+v, want it marked", name, got)
			}
		}
		s.mu.Lock()
		s.api.halfway = false
		s.mu.Unlock()
		w.Saw(s.set())
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			if got, requests := s.pod(name); got != nil {
				t.Errorf("pod %s is left after %s: %+v", name, requests, got)
			}
		}
	})
}

// A pod with another client's finalizer is deleted once.
func TestFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t)
		held := examplePod("a")
		held.Finalizers = []string{"example.com/held"}
		if _, err := s.api.create(held); err != nil {
			t.Fatal(err)
		}
		s.api.wantsDeleted(s.api.pods["a"])
		w.Saw(s.set())
		s.says(w, "a", v1.PodStatus{Phase: v1.PodSucceeded}, true)
		s.pod("a")
		w.Saw(s.set())
		time.Sleep(time.Hour)
		got, requests := s.pod("a")
		if got == nil || requests != "" || ptr.Deref(got.DeletionGracePeriodSeconds, 1) != 0 {
			t.Errorf("it is %+v, after it was deleted there came %s", got, requests)
		}
	})
}

// A delivery that precedes the answer to a deletion is newer than the answer: a pod that a
// finalizer keeps does not count as gone, and its status is kept up to date.
func TestDeliveredBeforeTheAnswer(t *testing.T) {
	now := time.Unix(1, 0)
	api, planner := newFakeAPI(), NewPlanner()
	held := examplePod("a")
	held.Finalizers = []string{"example.com/held"}
	pod, err := api.create(held)
	if err != nil {
		t.Fatal(err)
	}
	ended := v1.PodStatus{Phase: v1.PodSucceeded, StartTime: ptr.To(metav1.NewTime(now))}
	pod.Status = ended
	api.wantsDeleted(pod)
	planner.Saw([]*v1.Pod{api.pods["a"]}, now)
	planner.Wrote(podstatus.Change{Pod: api.pods["a"], After: ended, Cleared: true}, now)
	deletion, _ := planner.Next(pod.UID, now)
	if deletion.Verb != requests.Delete {
		t.Fatalf("the first request is %q", deletion.Verb)
	}
	if err := api.delete(deletion.Pod, deletion.Pod.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	other := *api.pods["a"]
	other.Status.Message = "of another node"
	planner.Saw([]*v1.Pod{api.put(&other)}, now)
	if _, err := planner.Answered(pod.UID, deletion, nil, nil, now); err != nil {
		t.Fatal(err)
	}
	q, _ := planner.Next(pod.UID, now)
	if q.Verb != requests.Get {
		t.Fatalf("after the answer comes %q, want a get", q.Verb)
	}
	if _, err := planner.Answered(pod.UID, q, api.pods["a"], nil, now); err != nil {
		t.Fatal(err)
	}
	if q, _ = planner.Next(pod.UID, now); q.Verb != requests.Patch || q.Status.Message != "" {
		t.Errorf("then comes %q of message %q, want a patch without one", q.Verb, q.Status.Message)
	}
}
