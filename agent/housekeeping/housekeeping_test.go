package housekeeping

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cri"
)

// A task comes round each period, also if it fails, and one that hangs holds up no other.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		count := 0
		tasks := Tasks{
			{"hangs", time.Second, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}},
			{"fails", 2 * time.Second, func(context.Context) error {
				count++
				return errors.New("no")
			}},
		}
		ended := make(chan error)
		go func() { ended <- tasks.Run(ctx) }()
		time.Sleep(7 * time.Second)
		cancel()
		if err := <-ended; err != nil || count != 3 {
			t.Errorf("%d rounds in 7 s, every 2 s; ended with %v", count, err)
		}
	})
}

// What is left of a pod is found in the runtime, in what is assigned, in directories and in
// cgroups, once for each pod, by its best name; a place that cannot be read hides no other.
func TestOrphans(t *testing.T) {
	var found []string
	o := Orphans{
		Running: func() []cri.Pod {
			return []cri.Pod{{UID: "r", Namespace: "n", Name: "runs"}, {UID: "known"}}
		},
		Assigned: func() allocation.State {
			return allocation.State{Pods: map[types.UID]allocation.Pod{
				"a": {UID: "a", Namespace: "n", Name: "assigned"}, "r": {UID: "r"},
			}}
		},
		Directories: func() ([]types.UID, error) { return nil, errors.New("unreadable") },
		Cgroups:     func() ([]types.UID, error) { return []types.UID{"g", "r", "known"}, nil },
		Known:       func(uid types.UID) bool { return uid == "known" },
		Found: func(p *v1.Pod) {
			found = append(found, string(p.UID)+":"+p.Namespace+"/"+p.Name)
		},
	}
	err := o.Find(t.Context())
	if err == nil || !strings.Contains(err.Error(), "directories of removed pods: unreadable") {
		t.Errorf("error %v", err)
	}
	slices.Sort(found)
	if want := []string{"a:n/assigned", "g:/", "r:n/runs"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
