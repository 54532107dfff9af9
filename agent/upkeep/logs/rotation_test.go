package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// runtime has containers that write to their logs as a runtime does: to the file that they opened,
// whatever its present name.
type runtime struct {
	t     *testing.T
	dir   string
	files map[string]*os.File
	lines map[string]int
	fails func(ctx context.Context, container string) error
}

func newRuntime(t *testing.T, containers ...string) *runtime {
	r := &runtime{t: t, dir: t.TempDir(), files: map[string]*os.File{}, lines: map[string]int{}}
	for _, c := range containers {
		if err := os.MkdirAll(filepath.Dir(r.path(c)), 0o755); err != nil {
			t.Fatal(err)
		}
		r.open(c)
	}
	t.Cleanup(func() {
		for _, f := range r.files {
			f.Close()
		}
	})
	return r
}

func (r *runtime) path(c string) string { return filepath.Join(r.dir, "n_pod_uid", c, "0.log") }

func (r *runtime) open(c string) {
	r.t.Helper()
	f, err := os.OpenFile(r.path(c), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		r.t.Fatal(err)
	}
	if old := r.files[c]; old != nil {
		old.Close()
	}
	r.files[c] = f
}

func (r *runtime) write(c string, lines int) {
	for range lines {
		fmt.Fprintf(r.files[c], "line %07d\n", r.lines[c])
		r.lines[c]++
	}
}

func (r *runtime) Reopen(ctx context.Context, c string) error {
	if r.fails != nil {
		if err := r.fails(ctx, c); err != nil {
			return err
		}
	}
	r.open(c)
	return nil
}

func (r *runtime) running() []cri.Pod {
	p := cri.Pod{UID: "uid", Namespace: "n", Name: "pod"}
	for _, c := range slices.Sorted(func(yield func(string) bool) {
		for c := range r.files {
			if !yield(c) {
				return
			}
		}
	}) {
		p.Containers = append(p.Containers,
			cri.Container{ID: c, Name: c, State: cri.ContainerRunning})
	}
	return []cri.Pod{p}
}

// rotation rotates at ten lines and keeps four files.
func (r *runtime) rotation() *Rotation {
	return New(Config{Running: r.running, LogsDir: r.dir, Reopen: r.Reopen,
		MaxSize: 130, MaxFiles: 4, Workers: 1})
}

// names returns the files of the container's log.
func (r *runtime) names(c string) (out []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(r.path(c)))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// text returns the content of all files of the log, the oldest first.
func (r *runtime) text(c string) string {
	r.t.Helper()
	var out strings.Builder
	names := r.names(c)
	for _, name := range append(names[1:], names[0]) { // 0.log sorts before 0.log.2026...
		f, err := os.Open(filepath.Join(filepath.Dir(r.path(c)), name))
		if err != nil {
			r.t.Fatal(err)
		}
		var from io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if from, err = gzip.NewReader(f); err != nil {
				r.t.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := io.Copy(&out, from); err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		f.Close()
	}
	return out.String()
}

// whole checks that the last lines written are there, each once and in order.
func (r *runtime) whole(c string, least int) {
	r.t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.text(c), "\n"), "\n")
	if len(lines) < least {
		r.t.Errorf("log %s has %d lines, want at least %d", c, len(lines), least)
	}
	for i, line := range lines {
		if want := fmt.Sprintf("line %07d", r.lines[c]-len(lines)+i); line != want {
			r.t.Fatalf("log %s: line %d is %q, want %q", c, i, line, want)
		}
	}
}

// TestRotation: a log that has reached its maximum size is renamed and opened again. The allowed
// number of files stays, all rotated ones but the newest compressed, without losing lines in them.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRuntime(t, "a", "small")
		r := run.rotation()
		run.write("small", 9)
		for i := range 7 {
			run.write("a", 12)
			time.Sleep(time.Second)
			if err := r.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			run.write("a", 1)
			names := run.names("a")
			if want := min(i+2, 4); len(names) != want {
				t.Fatalf("after rotation %d: files %q, want %d", i+1, names, want)
			}
			for j, name := range names {
				packed := j > 0 && j < len(names)-1
				if strings.HasSuffix(name, ".gz") != packed {
					t.Errorf("after rotation %d: files %q", i+1, names)
				}
			}
			run.whole("a", min(i+1, 3)*13)
		}
		if got := run.names("small"); !slices.Equal(got, []string{"0.log"}) {
			t.Errorf("a log that has not reached its size has %q", got)
		}
	})
}

// TestCrash: wherever the agent was killed during a rotation, the next looks complete it, and no
// line is lost.
func TestCrash(t *testing.T) {
	move := func(run *runtime, to string) {
		if err := os.Rename(run.path("a"), run.path("a")+to); err != nil {
			run.t.Fatal(err)
		}
	}
	put := func(run *runtime, name, text string) {
		if err := os.WriteFile(run.path("a")+name, []byte(text), 0o640); err != nil {
			run.t.Fatal(err)
		}
	}
	for name, kill := range map[string]func(run *runtime){
		"before the log was opened again": func(run *runtime) { move(run, ".20000101-000000") },
		"while compressing": func(run *runtime) {
			move(run, ".19990101-000000")
			run.open("a")
			put(run, ".19990101-000000.tmp", "half a fi")
		},
		"before the plain file was removed": func(run *runtime) {
			old := run.path("a") + ".19990101-000000"
			move(run, ".19990101-000000")
			run.open("a")
			text, err := os.ReadFile(old)
			if err != nil {
				run.t.Fatal(err)
			}
			dir, err := files.OpenFolder(run.dir, filepath.Dir(old))
			if err != nil {
				run.t.Fatal(err)
			}
			defer dir.Close()
			if err := compress(run.t.Context(), dir, filepath.Base(old)); err != nil {
				run.t.Fatal(err)
			}
			put(run, ".19990101-000000", string(text))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := newRuntime(t, "a")
				run.write("a", 12)
				kill(run)
				run.write("a", 12)
				r := run.rotation()
				for range 2 {
					if err := r.Look(t.Context()); err != nil {
						t.Fatal(err)
					}
					run.write("a", 12)
					time.Sleep(time.Second)
				}
				run.whole("a", 48)
				for _, name := range run.names("a") {
					if strings.HasSuffix(name, ".tmp") {
						t.Errorf("files %q", run.names("a"))
					}
				}
			})
		})
	}
}

// TestReopenFails: a log that the runtime fails to open gets its name back, unless the runtime
// opened it and only reported an error. It is tried again after all others.
func TestReopenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRuntime(t, "a", "b")
		r := run.rotation()
		var asked []string
		run.fails = func(_ context.Context, c string) error {
			asked = append(asked, c)
			if c == "a" {
				return errors.New("no")
			}
			return nil
		}
		run.write("a", 12)
		run.write("b", 12)
		err := r.Look(t.Context())
		if err == nil || !strings.Contains(err.Error(), run.path("a")+": no") {
			t.Errorf("error %v", err)
		}
		run.write("a", 1)
		if got := run.names("a"); !slices.Equal(got, []string{"0.log"}) {
			t.Errorf("after a failure there are %q", got)
		}
		run.whole("a", 13)
		run.whole("b", 12)

		time.Sleep(time.Second)
		run.write("b", 12)
		asked = nil
		run.fails = func(_ context.Context, c string) error {
			asked = append(asked, c)
			if c == "a" {
				run.open(c)
				return errors.New("the answer was lost")
			}
			return nil
		}
		if err := r.Look(t.Context()); err == nil {
			t.Error("a failure is no error")
		}
		if want := []string{"b", "a"}; !slices.Equal(asked, want) {
			t.Errorf("opened again: %q, want %q", asked, want)
		}
		run.write("a", 1)
		run.whole("a", 14)
	})
}

// TestHungReopen: a runtime that hangs on one log delays the others for a bounded time, and only in
// the first look.
func TestHungReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRuntime(t, "a", "b")
		r := run.rotation()
		run.fails = func(ctx context.Context, c string) error {
			if c != "a" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		run.write("a", 12)
		run.write("b", 12)
		began := time.Now()
		if err := r.Look(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("it took %v", took)
		}
		if got := run.names("b"); len(got) != 2 {
			t.Errorf("the other log has %q", got)
		}
		run.whole("a", 12)
	})
}

// TestElsewhere: logs outside the log directory, and logs that are no files, are left alone.
func TestElsewhere(t *testing.T) {
	run := newRuntime(t, "a")
	run.write("a", 12)
	r := run.rotation()
	pods := run.running()
	r.cfg.Running = func() []cri.Pod { return pods }
	run.fails = func(context.Context, string) error { return errors.New("it is asked about") }
	for _, path := range []string{"/dev/zero", run.dir + "/../elsewhere.log"} {
		pods[0].Containers[0].From.LogPath = path
		if err := r.Look(t.Context()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	pods[0].Containers[0].From.LogPath = ""
	pods[0].Containers[0].State = cri.ContainerExited
	if err := r.Look(t.Context()); err != nil {
		t.Error(err)
	}
	if got := run.names("a"); len(got) != 1 {
		t.Errorf("files %q", got)
	}
}

// TestForeignFiles: files that only look like logs or rotated logs, through a link to another
// directory or a hard link, are neither renamed, compressed nor removed.
func TestForeignFiles(t *testing.T) {
	run := newRuntime(t, "a", "b", "c")
	other := t.TempDir()
	secret := filepath.Join(other, "0.log")
	linked := filepath.Join(other, "linked")
	for _, name := range []string{secret, secret + ".20000101-000000", secret + ".20000102-000000",
		linked} {
		if err := os.WriteFile(name, bytes.Repeat([]byte("secret\n"), 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := list(t, other)
	soft, hard, old := filepath.Dir(run.path("a")), run.path("b"), run.path("c")+".20000101-000000"
	run.write("c", 12)
	for _, err := range []error{
		os.RemoveAll(soft), os.Symlink(other, soft), os.Remove(hard), os.Link(linked, hard),
		os.Link(linked, old), os.WriteFile(run.path("c")+".20000102-000000", nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := run.rotation().Look(t.Context()); err == nil {
			t.Error("nothing is said of a folder that is a link")
		}
	}
	place, pod := logfiles.Place{Dir: run.dir}, cri.Pod{Namespace: "n", Name: "pod", UID: "uid"}
	a := cri.Container{Name: "a"}
	if place.Remove(pod, a) == nil || place.Keep(pod, a) == nil ||
		place.Next(pod.Reference(), "a") != 0 {
		t.Error("a folder that is a link counts as one of logs")
	}
	if got := list(t, other); !slices.Equal(got, before) {
		t.Errorf("of %q are left %q", before, got)
	}
	if got := run.names("b"); len(got) != 1 {
		t.Errorf("a hard link became %q", got)
	}
	if _, err := os.Lstat(old + ".gz"); err == nil {
		t.Error("what a hard link leads to was compressed, into a file that has one name")
	}
}

// TestRotated: foreign files with similar names do not count as rotated logs.
func TestRotated(t *testing.T) {
	for name, want := range map[string]bool{
		"0.log.20260102-030405":    true,
		"0.log.20260102-030405.gz": true,
		"0.log":                    false,
		"1.log.20260102-030405":    false,
		"0.log.20260102-0304050":   false,
		"0.log.202601020030405":    false,
		"0.log.for-support.zip":    false,
		"0.log.20260102-by-hand":   false,
		"0.log.saved by-me too":    false,
		"0.log.yyyymmdd-hhmmss":    false,
	} {
		if got := logfiles.Rotated("0.log", name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
