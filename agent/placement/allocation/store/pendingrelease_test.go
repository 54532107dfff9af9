package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
)

func every(string) bool { return true }

func TestOwes(t *testing.T) {
	a := allocationtest.Pod("a")
	less := allocationtest.Pod("a")
	less.Containers = map[string]allocation.Container{"main": {allocation.Devices{
		{Resource: "example.com/gpu", IDs: []string{"gpu-1"}},
	}}}
	gpus := allocation.PendingRelease{UID: "a", Namespace: "default", Name: "train-a", Resource: "example.com/gpu",
		IDs: []string{"gpu-0", "gpu-1"}}
	nics := gpus
	nics.Resource, nics.IDs = "example.com/nic", []string{"nic-0"}
	one := gpus
	one.IDs = []string{"gpu-0"}
	for name, tt := range map[string]struct {
		before, after allocation.Pod
		wants         func(string) bool
		want          []allocation.PendingRelease
	}{
		"gone":      {a, allocation.Pod{}, every, []allocation.PendingRelease{gpus, nics}},
		"unwanted":  {a, allocation.Pod{}, func(string) bool { return false }, nil},
		"one wants": {a, allocation.Pod{}, func(r string) bool { return r == nics.Resource }, []allocation.PendingRelease{nics}},
		"less":      {a, less, every, []allocation.PendingRelease{one, nics}},
		"more":      {less, a, every, nil},
		"the same":  {a, a, every, nil},
		"the first": {allocation.Pod{}, a, every, nil},
	} {
		if diff := cmp.Diff(tt.want, allocation.ReleasesOf(tt.before, tt.after, tt.wants)); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

// What is owed is in the state with the commit that takes the devices from the pod, whichever way
// the file was written, until each of them is settled.
func TestOwedSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	a := allocationtest.Pod("a")
	owed := allocation.ReleasesOf(a, allocation.Pod{}, every)
	said := func(want ...allocation.PendingRelease) {
		t.Helper()
		state, err := ReadState(filepath.Join(dir, FileName))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, state.PendingReleases); diff != "" {
			t.Errorf("after a restart, -want +got:\n%s", diff)
		}
	}
	commit := func(s *Store, changes ...allocation.Change) {
		t.Helper()
		if err := s.Commit(ctx, changes...); err != nil {
			t.Fatal(err)
		}
		said(s.State().PendingReleases...)
	}
	t.Run("one line after the other", func(t *testing.T) {
		s := mustOpen(t, dir)
		run(t, s)
		commit(s, allocation.Change{Put: a}, allocation.Change{Put: allocationtest.Pod("b")})
		commit(s, allocation.Change{Drop: "a", Releases: owed})
		said(owed...)
		if _, held := s.State().Pods["a"]; held {
			t.Error("the pod holds something")
		}
		// The pod comes and goes again before its plugin has answered.
		more := owed[0]
		more.IDs = []string{"gpu-7"}
		commit(s, allocation.Change{Releases: []allocation.PendingRelease{more}}, allocation.Change{Released: owed[1]})
		both := owed[0]
		both.IDs = []string{"gpu-0", "gpu-1", "gpu-7"}
		said(both)
		commit(s, allocation.Change{Released: owed[0]})
		said(more)
	})
	t.Run("begun anew", func(t *testing.T) {
		s := mustOpen(t, dir)
		run(t, s)
		if n := len(s.State().PendingReleases); n != 1 {
			t.Fatalf("%d are owed after a restart", n)
		}
		commit(s, allocation.Change{Releases: owed[1:]}) // the first of a process writes the whole state
		last := s.State().PendingReleases
		commit(s, allocation.Change{Released: last[0]}, allocation.Change{Released: last[1]}, allocation.Change{Released: last[1]})
		said()
	})
}

// A commit that fails owes nothing.
func TestOwedIsAllOrNothing(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	s.journal.Sync = func(*os.File) error { return errors.New("no space") }
	run(t, s)
	a := allocationtest.Pod("a")
	if err := s.Commit(context.Background(), allocation.Change{Put: a}); err != nil {
		t.Fatal(err) // a file that is begun is synced in another way
	}
	b := allocationtest.Pod("b")
	if err := s.Commit(context.Background(), allocation.Change{Put: b, Releases: allocation.ReleasesOf(a, allocation.Pod{}, every)}); err == nil {
		t.Fatal("the disk is full, and nothing was said")
	}
	if owed := s.State().PendingReleases; len(owed) != 0 {
		t.Errorf("%+v is owed", owed)
	}
}

func TestOwedThatIsNobodys(t *testing.T) {
	line, err := encodeLine(`"version":3,`, fileState{PendingReleases: []allocation.PendingRelease{{IDs: []string{"gpu-0"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(line); err == nil || !strings.Contains(err.Error(), "corrupt state file") {
		t.Errorf("said %v", err)
	}
}
