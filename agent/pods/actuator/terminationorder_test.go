package actuator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// slow is a runtime whose containers stop slowly or not at all.
type slow struct {
	internalapi.RuntimeService
	begun  time.Time
	takes  map[string]time.Duration
	broken map[string]error

	mu  sync.Mutex
	log []string
}

func (s *slow) StopContainer(ctx context.Context, id string, grace int64) error {
	s.mu.Lock()
	s.log = append(s.log, fmt.Sprintf("%v %s in %d", time.Since(s.begun), id, grace))
	s.mu.Unlock()
	if err := s.broken[id]; err != nil {
		return err
	}
	select {
	case <-time.After(min(s.takes[id], time.Duration(grace)*time.Second)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A container is stopped when those of the previous turn have ended and its own hook is done, at
// the end of the grace period at the latest.
func TestStopsInOrder(t *testing.T) {
	sleep := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 10}}}
	pod := podtest.New("", podtest.Containers("web", "db", "b", "a"))
	pod.Spec.Containers[3].Lifecycle = sleep
	var observed cri.Pod
	for _, name := range []string{"web", "db", "b", "a"} {
		observed.Containers = append(observed.Containers, cri.Container{ID: name, Name: name})
	}
	stop := podworker.Action{Kind: podworker.StopContainers, IDs: []string{"web", "db", "b", "a"},
		Hooks: []string{"a"}, StopOrder: [][]string{{"web", "db"}, {"b"}, {"a"}}, Grace: 30 * time.Second}
	for name, c := range map[string]struct {
		takes  map[string]time.Duration
		broken map[string]error
		want   []string
	}{
		"in turn": {takes: map[string]time.Duration{"web": 4 * time.Second, "db": time.Second},
			want: []string{"0s db in 30", "0s web in 30", "10s a in 20", "4s b in 26"}},
		"late": {takes: map[string]time.Duration{"web": 12 * time.Second, "b": 2 * time.Second},
			want: []string{"0s db in 30", "0s web in 30", "12s b in 18", "14s a in 16"}},
		"not stopped": {broken: map[string]error{"db": errors.New("no")},
			want: []string{"0s db in 30", "0s web in 30", "30s a in 2", "30s b in 2"}},
		"gone": {broken: map[string]error{"db": status.Error(codes.NotFound, "no")},
			want: []string{"0s b in 30", "0s db in 30", "0s web in 30", "10s a in 20"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &slow{begun: time.Now(), takes: c.takes, broken: c.broken}
			a := New(Config{Runtime: r, Node: Node{Network: up}, Tell: Tell{
				Container: func(podspec.Ref, string, string, string) {},
				Hooked:    func(bool, error) {}}})
			err := a.stopContainers(t.Context(), pod, observed, stop)
			if failed := name == "not stopped"; failed != (err != nil) {
				t.Errorf("%s: %v", name, err)
			}
			slices.Sort(r.log)
			if !slices.Equal(r.log, c.want) {
				t.Errorf("%s: %q, want %q", name, r.log, c.want)
			}
		})
	}
}

// A cancelled stop stops no container that waits for its turn: the worker decides anew.
func TestStopOrderHastened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slow{begun: time.Now(), takes: map[string]time.Duration{"web": time.Minute}}
		a := New(Config{Runtime: r, Node: Node{Network: up}, Tell: Tell{
			Container: func(podspec.Ref, string, string, string) {},
			Hooked:    func(bool, error) {}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := a.stopContainers(ctx, &v1.Pod{}, cri.Pod{}, podworker.Action{
			Kind: podworker.StopContainers, IDs: []string{"web", "a"},
			StopOrder: [][]string{{"web"}, {"a"}}, Grace: time.Hour})
		if want := []string{"0s web in 3600"}; err == nil || !slices.Equal(r.log, want) {
			t.Errorf("%v, %q, want %q", err, r.log, want)
		}
	})
}
