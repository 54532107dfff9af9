package statuses

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// took is reported for a status that changed here, and not for one that is only restored there.
func TestTook(t *testing.T) {
	b, now := NewPlanner(), time.Now()
	pod := examplePod("a")
	pod.UID = types.UID("a")
	answered := func() time.Duration {
		q, _ := b.Next(pod.UID, now)
		if q.Pod == nil {
			t.Fatal("there is nothing to request")
		}
		got := q.Pod.DeepCopy()
		got.Status = q.Status
		out, err := b.Answered(pod.UID, q, got, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		return out.Took
	}
	b.Saw([]*v1.Pod{pod}, now)
	b.Wrote(podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: v1.PodRunning}}, now)
	now = now.Add(3 * time.Second)
	if took := answered(); took != 3*time.Second {
		t.Errorf("a change took %v", took)
	}
	b.Saw([]*v1.Pod{pod.DeepCopy()}, now) // another client restored the old one
	if took := answered(); took != 0 {
		t.Errorf("what was put right took %v", took)
	}
}

// A mirror pod that ended with an earlier life is told nothing. If the API server, restored from a backup, has an
// older version that has not ended, it is asked, and gets the status.
func TestOutlivedMirrorOfARestoredServer(t *testing.T) {
	b, now := NewPlanner(), time.Now()
	static := podtest.New("n/s", podtest.UID("static"), podtest.Source(source.FileSource),
		podtest.Annotations(podspec.AnnotationHash, "h"))
	version := func(of string, phase v1.PodPhase) *v1.Pod {
		m := podtest.New("n/s", podtest.UID("mirror"), podtest.Phase(phase), podtest.Annotations(podspec.AnnotationMirror, "h"))
		m.ResourceVersion = of
		return m
	}
	b.Saw([]*v1.Pod{version("20", v1.PodFailed)}, now)
	b.Wrote(podstatus.Change{Pod: static, After: v1.PodStatus{Phase: v1.PodSucceeded}}, now)
	if q, _ := b.Next("static", now); q.Verb != requests.None || !b.isPublished("static") {
		t.Errorf("of a mirror pod that ended otherwise there is a %q, published: %t", q.Verb, b.isPublished("static"))
	}
	restored := version("10", v1.PodPending)
	b.Saw([]*v1.Pod{restored}, now)
	q, again := b.Next("static", now)
	if q.Verb != requests.None || !again.Equal(now.Add(kubeapi.Patience)) {
		t.Errorf("an older version may be late: there is a %q, and the next in %v", q.Verb, again.Sub(now))
	}
	now = again
	if q, _ = b.Next("static", now); q.Verb != requests.Get {
		t.Fatalf("of a version that stays older there is a %q", q.Verb)
	}
	if _, err := b.Answered("static", q, restored, nil, now); err != nil {
		t.Fatal(err)
	}
	if q, _ = b.Next("static", now); q.Verb != requests.Patch || q.Status.Phase != v1.PodSucceeded {
		t.Errorf("of the restored mirror pod there is a %q with %s", q.Verb, q.Status.Phase)
	}
}

// A pod of which nothing is known yet is told nothing: it may be refused, and had no conditions then.
func TestNothingIsKnownYet(t *testing.T) {
	b, pod, now := NewPlanner(), examplePod("a"), time.Now()
	b.Saw([]*v1.Pod{pod}, now)
	b.Wrote(podstatus.Change{Pod: pod, First: true, After: v1.PodStatus{Phase: v1.PodPending,
		Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}}}, now)
	if q, _ := b.Next(pod.UID, now); q.Verb != requests.None {
		t.Errorf("it is to be told %+v", q.Status)
	}
	b.Wrote(podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: v1.PodFailed}}, now)
	if q, _ := b.Next(pod.UID, now); q.Status.Phase != v1.PodFailed {
		t.Errorf("it was refused, and is to be told %+v", q.Status)
	}
}

// waits is a planner with a pod whose container waits, of which the API server has no status yet.
func waits(message string, now time.Time) (*Planner, types.UID) {
	b, pod := NewPlanner(), examplePod("a")
	pod.UID = types.UID("a")
	b.Saw([]*v1.Pod{pod}, now)
	b.Wrote(podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: v1.PodPending,
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
			Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: message}}}}}}, now)
	return b, pod.UID
}

// A status that is too large even without everything optional is retried with pauses.
func TestAlwaysTooLarge(t *testing.T) {
	now := time.Now()
	b, uid := waits(strings.Repeat("x", 1000), now)
	tooLarge := apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	for _, length := range []int{1000, shortMessage, 0} {
		q, _ := b.Next(uid, now)
		got := q.Status.ContainerStatuses[0].State.Waiting
		if got.Reason != "ErrImagePull" || len(got.Message) != length {
			t.Errorf("%d bytes of a message for %s, want %d", len(got.Message), got.Reason, length)
		}
		if _, err := b.Answered(uid, q, nil, tooLarge, now); err != nil {
			t.Errorf("less could be said, and it waits: %v", err)
		}
	}
	q, _ := b.Next(uid, now)
	if _, err := b.Answered(uid, q, nil, tooLarge, now); err == nil {
		t.Error("there is nothing more to leave out, and it is tried again at once")
	}
}

// A pod that the API server no longer has gets no more requests, whenever the watch reports that.
func TestNotFound(t *testing.T) {
	now := time.Now()
	b, uid := waits("", now)
	q, _ := b.Next(uid, now)
	_, err := b.Answered(uid, q, nil, apierrors.NewNotFound(v1.Resource("pods"), "a"), now)
	if err != nil {
		t.Errorf("it is tried again: %v", err)
	}
	if q, again := b.Next(uid, now); q.Verb != requests.None || !again.IsZero() {
		t.Errorf("then %s is requested, and again at %v", q.Verb, again)
	}
}
