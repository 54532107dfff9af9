package statuses

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/podstatus"
)

// How long the API server did not have a status is told of one that changed here, and not of one
// that is only put right there.
func TestTook(t *testing.T) {
	b, now := NewBook(), time.Now()
	pod := examplePod("a")
	pod.UID = types.UID("a")
	answered := func() time.Duration {
		q, _ := b.Next(pod.UID, now)
		if q.Pod == nil {
			t.Fatal("there is nothing to request")
		}
		got := q.Pod.DeepCopy()
		got.Status = q.Status
		took, err := b.Answered(pod.UID, q, got, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	b.Saw([]*v1.Pod{pod}, now)
	b.Wrote(podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: v1.PodRunning}}, now)
	now = now.Add(3 * time.Second)
	if took := answered(); took != 3*time.Second {
		t.Errorf("a change took %v", took)
	}
	b.Saw([]*v1.Pod{pod.DeepCopy()}, now) // somebody else wrote what was there before
	if took := answered(); took != 0 {
		t.Errorf("what was put right took %v", took)
	}
}
