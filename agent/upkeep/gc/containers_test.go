package gc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// node returns a pod "runs" with container a, which exited twice and runs, and b, which exited
// twice, and a pod "ended" with a container that exited twice. They were created a minute apart.
func node(now time.Time) []cri.Pod {
	at := func(id string, age int, state cri.ContainerState) cri.Container {
		return cri.Container{ID: id, Name: id[:1], State: state,
			CreatedAt: now.Add(-time.Duration(age) * time.Minute)}
	}
	return []cri.Pod{
		{UID: "runs", Containers: []cri.Container{at("a3", 1, cri.ContainerRunning),
			at("b2", 2, cri.ContainerExited), at("a2", 3, cri.ContainerExited),
			at("b1", 6, cri.ContainerExited), at("a1", 8, cri.ContainerExited)}},
		{UID: "ended", Containers: []cri.Container{at("c2", 9, cri.ContainerExited),
			at("c1", 10, cri.ContainerExited)}},
	}
}

// podsOf are pods of a source with the phases that it has of them.
func podsOf(phases map[types.UID]v1.PodPhase, from string) func(types.UID) (*v1.Pod, bool) {
	return func(uid types.UID) (*v1.Pod, bool) {
		phase, known := phases[uid]
		return podtest.New(string(uid), podtest.Source(from), podtest.Phase(phase)), known
	}
}

// TestEnded: the newest container goes only if the API server knows that its pod has ended.
func TestEnded(t *testing.T) {
	phases := map[types.UID]v1.PodPhase{
		"succeeded": v1.PodSucceeded, "failed": v1.PodFailed, "runs": v1.PodRunning, "new": "",
	}
	for from, want := range map[string][]types.UID{
		podspec.APISource: {"succeeded", "failed"}, source.FileSource: nil, source.HTTPSource: nil,
	} {
		c := Containers{Pod: podsOf(phases, from)}
		for _, uid := range []types.UID{"succeeded", "failed", "runs", "new", "unknown"} {
			if got := c.ended(uid); got != slices.Contains(want, uid) {
				t.Errorf("%s pod %s: ended is %v", from, uid, got)
			}
		}
	}
}

// TestContainers: beyond the bound the oldest are removed, the newest of each name last. The newest
// of a name in a pod that has not ended stays, and so do young ones.
func TestContainers(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		most int
		age  time.Duration
		want []string
	}{
		{-1, 0, nil},
		{6, 0, nil},
		{5, 0, []string{"c1"}},
		{3, 0, []string{"c1", "a1", "b1"}},
		{2, 0, []string{"c1", "a1", "b1", "a2"}},
		{0, 0, []string{"c1", "a1", "b1", "a2", "c2"}},
		{0, 7 * time.Minute, []string{"c1", "a1", "c2"}},
		{5, time.Hour, nil},
	} {
		var got []string
		err := Containers{
			Most: c.most, Age: c.age, Running: func() []cri.Pod { return node(now) },
			Pod: podsOf(map[types.UID]v1.PodPhase{"runs": v1.PodRunning, "ended": v1.PodFailed},
				podspec.APISource),
			Remove: func(_ context.Context, pod cri.Pod, id string) error {
				got = append(got, id)
				return nil
			},
		}.Look(t.Context())
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("at most %d of %v: removes %q, %v; want %q", c.most, c.age, got, err, c.want)
		}
	}
}

// TestContainersThatStay: a failure to remove one does not keep the others.
func TestContainersThatStay(t *testing.T) {
	var asked []string
	err := Containers{
		Most: 3, Running: func() []cri.Pod { return node(time.Now()) },
		Pod: podsOf(map[types.UID]v1.PodPhase{"runs": v1.PodSucceeded, "ended": v1.PodSucceeded},
			podspec.APISource),
		Remove: func(_ context.Context, pod cri.Pod, id string) error {
			asked = append(asked, id)
			if id == "c1" {
				return errors.New("no")
			}
			return nil
		},
	}.Look(t.Context())
	if want := []string{"c1", "a1", "b1"}; !slices.Equal(asked, want) || err == nil ||
		err.Error() != "remove a container of pod ended: no" {
		t.Errorf("asked for %q, %v", asked, err)
	}
}

// TestFreeContainers: all that is not needed goes, whatever may stay else, and what went is counted.
func TestFreeContainers(t *testing.T) {
	now := time.Now()
	var removed []string
	n, err := Containers{
		Most: 100, Age: time.Hour, Running: func() []cri.Pod { return node(now) },
		Pod: podsOf(map[types.UID]v1.PodPhase{"ended": v1.PodFailed}, podspec.APISource),
		Remove: func(_ context.Context, _ cri.Pod, id string) error {
			if id == "c1" {
				return errors.New("busy")
			}
			removed = append(removed, id)
			return nil
		},
	}.Free(t.Context())
	if slices.Sort(removed); n != 4 || err == nil || !slices.Equal(removed, []string{"a1", "a2", "b1", "c2"}) {
		t.Errorf("it removed %v, and counts %d: %v", removed, n, err)
	}
}
