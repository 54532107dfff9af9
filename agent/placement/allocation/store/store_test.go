package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
)

func run(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

func mustOpen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCommitSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	run(t, s)
	ctx := context.Background()
	a, b := allocationtest.Pod("a"), allocationtest.Pod("b")
	if err := s.Commit(ctx, allocation.Change{Put: a}, allocation.Change{Put: b}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, allocation.Change{Drop: "b"}); err != nil {
		t.Fatal(err)
	}
	got := mustOpen(t, dir).State()
	if diff := cmp.Diff(map[types.UID]allocation.Pod{"a": a}, got.Pods, allocationtest.Same); diff != "" {
		t.Errorf("state after a restart (-want +got):\n%s", diff)
	}
	if got.Version != s.State().Version {
		t.Errorf("version after a restart = %d, want %d", got.Version, s.State().Version)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if n := len(left) + len(hidden); n != 1 {
		t.Errorf("files left in the directory: %v %v, want only %s", left, hidden, FileName)
	}
}

func TestFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	run(t, s)
	ctx := context.Background()
	if err := s.Commit(ctx, allocation.Change{Put: allocationtest.Pod("a")}); err != nil {
		t.Fatal(err)
	}
	before := s.State()
	full := errors.New("no space left on device")
	s.journal.Sync = func(*os.File) error { return full }
	if err := s.Commit(ctx, allocation.Change{Put: allocationtest.Pod("b")}); !errors.Is(err, full) {
		t.Errorf("Commit() = %v, want %v", err, full)
	}
	if diff := cmp.Diff(before, s.State(), allocationtest.Same); diff != "" {
		t.Errorf("a failed commit changed the state (-before +after):\n%s", diff)
	}
	want := map[types.UID]allocation.Pod{"a": allocationtest.Pod("a")}
	if diff := cmp.Diff(want, mustOpen(t, dir).State().Pods, allocationtest.Same); diff != "" {
		t.Errorf("a failed commit changed the file (-before +after):\n%s", diff)
	}
}

// More than can be read again is not written; what makes it less always is.
func TestStateHasABound(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	r.Bounds.First = 2 << 20
	tooLarge := func(c allocation.Change) {
		t.Helper()
		err := r.record(r.state.With([]allocation.Change{c}), []allocation.Change{c})
		if err == nil || !strings.Contains(err.Error(), "at most 2 MiB are kept: remove pods") {
			t.Errorf("a state too large: %v", err)
		}
	}
	r.commit(allocation.Change{Put: smallPod("a", 1)})
	change := allocation.Change{Put: smallPod("b", 2<<20)}
	tooLarge(change)
	r.check()
	r.state = r.state.With([]allocation.Change{change})
	r.Close()
	r.commit(allocation.Change{Drop: "a"})
	tooLarge(allocation.Change{Put: smallPod("c", 2<<20)}) // nor in a file that was begun with too much
	r.check()
}

// Changed tells after the new state is there, and once for many.
func TestChanged(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	run(t, s)
	changed := mailbox.Subscribe(s.Changes())
	for _, uid := range []string{"a", "b"} {
		if err := s.Commit(context.Background(), allocation.Change{Put: allocationtest.Pod(uid)}); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	if n := len(s.State().Pods); n != 2 {
		t.Errorf("%d pods when told of the change, want 2", n)
	}
	s.journal.Sync = func(*os.File) error { return errors.New("no") }
	if err := s.Commit(context.Background(), allocation.Change{Put: allocationtest.Pod("c")}); err == nil {
		t.Fatal("no error")
	}
	select {
	case <-changed:
		t.Error("told of a change that failed")
	default:
	}
}

func TestConcurrentCommitsAreAllThere(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	run(t, s)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			err := s.Commit(context.Background(), allocation.Change{Put: allocationtest.Pod(fmt.Sprint(i))})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(mustOpen(t, dir).State().Pods); n != 50 {
		t.Errorf("%d pods in the file, want 50", n)
	}
}

func TestCommitAfterRunIsRefused(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(context.Background(), allocation.Change{Drop: "a"}); !errors.Is(err, ErrStopped) {
		t.Errorf("Commit() = %v, want %v", err, ErrStopped)
	}
}

// Whatever is done to the file, it is never half believed and never deleted.
func TestDamagedFileIsMovedAside(t *testing.T) {
	good, err := encode(allocation.State{Version: 7, Pods: map[types.UID]allocation.Pod{"a": allocationtest.Pod("a")}})
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty":         {},
		"binary":        {0xff, 0xfe, 0x00, 0x01},
		"newer version": []byte(strings.Replace(string(good), `"version":4`, `"version":5`, 1)),
		"flipped":       []byte(strings.Replace(string(good), `gpu-1`, `gpu-2`, 1)),
	}
	for i := 1; i < len(good)-1; i++ { // the last byte ends the line
		damaged[fmt.Sprintf("truncated at %d", i)] = good[:i]
	}
	for name, content := range damaged {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if s == nil || !errors.Is(err, files.ErrUnusable) {
			t.Fatalf("%s: Open() = %v, %v, want an empty store and a corrupt file", name, s, err)
		}
		if n := len(s.State().Pods); n != 0 {
			t.Errorf("%s: %d pods from a damaged file", name, n)
		}
		aside, _ := filepath.Glob(path + ".corrupt-*")
		if len(aside) != 1 || !strings.Contains(err.Error(), aside[0]) {
			t.Errorf("%s: moved to %v, the error says %v", name, aside, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode(allocation.State{Version: 7, Pods: map[types.UID]allocation.Pod{"a": allocationtest.Pod("a")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":2,"checksum":0,"data":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		state, err := decode(raw)
		if err != nil {
			return
		}
		again, err := encode(state)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(state, back, allocationtest.Same); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
	})
}
