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

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// A task runs every period, even if it fails, and soon after a change; many changes at once make it
// run once.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var changes, others mailbox.Topic
		var done []string
		note := func(name string) func(context.Context) error {
			return func(context.Context) error {
				done = append(done, name)
				return errors.New("no")
			}
		}
		h := New(
			Task{Name: "often", Period: 2 * time.Second, Run: note("often")},
			Task{
				Name: "on change", Period: time.Hour, On: []mailbox.Source{&changes},
				Run: note("on change"),
			},
			Task{Name: "soon", Period: time.Hour, First: time.Second, Run: note("soon")},
			Task{Name: "other", Period: time.Hour, On: []mailbox.Source{&others}, Run: note("other")},
		)
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		for _, step := range []struct {
			publish func()
			wait    time.Duration
			want    []string
		}{
			{func() {}, 7 * time.Second, []string{"soon", "often", "often", "often"}},
			{
				func() {
					for range 10 {
						changes.Publish()
					}
				}, 500 * time.Millisecond, []string{"on change"},
			},
			{func() {}, time.Second, []string{"often"}},
			{others.Publish, 100 * time.Millisecond, []string{"other"}},
		} {
			step.publish()
			time.Sleep(step.wait)
			synctest.Wait()
			if !slices.Equal(done, step.want) {
				t.Errorf("done %q, want %q", done, step.want)
			}
			done = nil
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Remains of a pod are found in the runtime, the assignments, directories and cgroups, once for
// each pod, under its best known name; a source that cannot be read hides no other.
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
		Remains: map[string]func() ([]types.UID, error){
			"directories": func() ([]types.UID, error) { return nil, errors.New("unreadable") },
			"cgroups":     func() ([]types.UID, error) { return []types.UID{"g", "r", "known"}, nil },
		},
		Known: func(uid types.UID) bool { return uid == "known" },
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
