package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/internal/files"
)

// smallPod holds one device, with an answer of so many bytes.
func smallPod(uid string, answer int) allocation.Pod {
	held := allocation.DeviceSet{
		Resource: "example.com/gpu", IDs: []string{uid}, Answer: make([]byte, answer),
	}
	return allocation.Pod{UID: types.UID(uid), Containers: map[string]allocation.Container{
		"main": {allocation.Devices{held}},
	}}
}

// recorder is a journal with the state that it was last told.
type recorder struct {
	*files.Journal
	t     testing.TB
	state allocation.State
}

func newRecorder(t testing.TB, dir string) *recorder {
	r := &recorder{Journal: newJournal(filepath.Join(dir, FileName)), t: t}
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) commit(changes ...allocation.Change) {
	r.t.Helper()
	next := r.state.With(changes)
	if err := r.record(next, changes); err != nil {
		r.t.Fatal(err)
	}
	r.state = next
}

func (r *recorder) record(next allocation.State, changes []allocation.Change) error {
	return record(r.Journal, next, changes)
}

func (r *recorder) size() int64 {
	r.t.Helper()
	info, err := os.Stat(r.Path)
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Size()
}

func (r *recorder) content() []byte {
	r.t.Helper()
	raw, err := os.ReadFile(r.Path)
	if err != nil {
		r.t.Fatal(err)
	}
	return raw
}

// check reads the file and compares it with the state.
func (r *recorder) check() {
	r.t.Helper()
	got, err := ReadState(r.Path)
	if err != nil {
		r.t.Fatal(err)
	}
	has, err := encode(got)
	want, wantErr := encode(r.state)
	if err != nil || wantErr != nil || !bytes.Equal(want, has) {
		r.t.Fatalf("the file has %.1000s, want %.1000s (%v, %v)", has, want, err, wantErr)
	}
}

// unversioned is the state as a file has it.
func unversioned(s allocation.State) allocation.State {
	out := allocation.State{Version: s.Version, Pods: map[types.UID]allocation.Pod{}}
	for uid, p := range s.Pods {
		p.Version = 0
		out.Pods[uid] = p
	}
	return out
}

// A commit writes what it changes and syncs it once, however much others hold; one that only drops
// need not be synced.
func TestCommitCostsWhatItChanges(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	syncs := 0
	r.Sync = func(f *os.File) error {
		syncs++
		return f.Sync()
	}
	r.commit(allocation.Change{Put: smallPod("huge", 2<<20)})
	for i := range 100 {
		uid := types.UID(fmt.Sprint(i))
		before := r.size()
		r.commit(allocation.Change{Put: smallPod(string(uid), 10)})
		r.commit(allocation.Change{Drop: uid})
		if wrote := r.size() - before; wrote <= 0 || wrote > 400 {
			t.Fatalf("pod %d: %d bytes were written", i, wrote)
		}
	}
	if syncs != 100 {
		t.Errorf("%d syncs for 100 admissions and 100 releases", syncs)
	}
	r.check()
}

// The file stays within twice what is held, and a bit.
func TestJournalIsBegunAnew(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	begins, begun := 0, int64(0)
	for i := range 40 {
		was := begun
		r.commit(allocation.Change{Put: smallPod("a", 100_000)}, allocation.Change{Put: smallPod(fmt.Sprint(i%3), 10)})
		begun = int64(bytes.IndexByte(r.content(), '\n') + 1)
		if begun != was || i == 0 {
			begins++
		}
		if limit := 2*begun + journalSlack; r.size() > limit {
			t.Fatalf("the file has %d bytes, want at most %d", r.size(), limit)
		}
		r.check()
	}
	if begins < 2 || begins > 10 {
		t.Errorf("the file was begun %d times in 40 commits", begins)
	}
}

// What two changes of one pod lead to is recorded, in either order.
func TestTwoChangesOfAPod(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	a := smallPod("a", 1)
	r.commit(allocation.Change{Put: smallPod("b", 1)})
	for _, changes := range [][]allocation.Change{
		{{Put: a}, {Drop: "a"}}, {{Drop: "b"}, {Put: a}, {Put: smallPod("b", 2)}},
		{{Drop: "a"}, {Put: a}}, {{Drop: "gone"}},
	} {
		r.commit(changes...)
		r.check()
	}
}

// A file of before is taken over: it is read, and the first commit writes the present version.
func TestOlderVersionsAreMigrated(t *testing.T) {
	for _, old := range []string{
		`{"version":1,"checksum":1151781218,"data":{"generation":3,"pods":[{"uid":"a",` +
			`"namespace":"default","name":"train-a","bootID":"boot-1","containers":[{"name":` +
			`"main","cpus":"2-3","devices":[{"resource":"example.com/gpu","ids":["gpu-0"],` +
			`"answer":""}]}]}]}}`,
		`{"version":2,"checksum":2660995074,"data":{"generation":5,"pods":[]}}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, dir)
		run(t, s)
		before := s.State()
		if err := s.Commit(t.Context(), allocation.Change{Put: smallPod("new", 1)}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(raw, []byte(`{"version":4,`)) {
			t.Errorf("the file is %s, %v", raw, err)
		}
		got := mustOpen(t, dir).State()
		if got.Version != before.Version+1 || len(got.Pods) != len(before.Pods)+1 {
			t.Errorf("the state is %+v, was %+v", got, before)
		}
	}
}

// Wherever a write is cut off, the file says what it said before it; a line that is complete is
// believed or the whole file is not.
func TestCutAndFlippedJournal(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	states := map[int]allocation.State{}
	for _, changes := range [][]allocation.Change{
		{{Put: smallPod("a", 3)}}, {{Put: smallPod("b", 3)}},
		{{Drop: "a"}, {Put: smallPod("c", 1)}},
	} {
		r.commit(changes...)
		states[len(r.content())] = unversioned(r.state)
	}
	raw := r.content()
	first := bytes.IndexByte(raw, '\n') + 1
	said := allocation.State{}
	for i := first; i <= len(raw); i++ {
		if s, ends := states[i]; ends {
			said = s
		}
		got, err := decode(raw[:i])
		if diff := cmp.Diff(said, got, allocationtest.Same); diff != "" || err != nil {
			t.Fatalf("cut at %d: %v (-want +got):\n%s", i, err, diff)
		}
	}
	before, after := states[len(raw)-len(lastLine(raw))], states[len(raw)]
	for i := range raw {
		for bit := range 8 {
			damaged := bytes.Clone(raw)
			damaged[i] ^= 1 << bit
			got, err := decode(damaged)
			if err != nil {
				continue
			}
			want := after
			if i == len(raw)-1 { // the last line's end
				want = before
			}
			if diff := cmp.Diff(want, got, allocationtest.Same); diff != "" {
				t.Errorf("byte %d as %q (-want +got):\n%s", i, damaged[i], diff)
			}
		}
	}
}

func lastLine(raw []byte) []byte {
	return raw[bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1:]
}

// A line that is missing, or there twice, is not passed over.
func TestLinesFollowEachOther(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	for _, uid := range []string{"a", "b", "c"} {
		r.commit(allocation.Change{Put: smallPod(uid, 1)})
	}
	lines := bytes.SplitAfter(r.content(), []byte("\n"))
	for name, raw := range map[string][]byte{
		"missing": slicesOf(lines[0], lines[2]), "twice": slicesOf(lines[0], lines[1], lines[1]),
		"again the first": slicesOf(lines[0], lines[0]), "empty": slicesOf(lines[0], []byte("\n")),
	} {
		if got, err := decode(raw); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func slicesOf(lines ...[]byte) []byte { return bytes.Join(lines, nil) }

// What a crash cut off is not appended to.
func TestFirstCommitAfterACutWrite(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir)
	r.commit(allocation.Change{Put: smallPod("a", 1)})
	r.commit(allocation.Change{Put: smallPod("b", 1)})
	if err := os.Truncate(r.Path, r.size()-5); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	run(t, s)
	if err := s.Commit(t.Context(), allocation.Change{Put: smallPod("c", 1)}); err != nil {
		t.Fatal(err)
	}
	got := mustOpen(t, dir).State()
	if _, cut := got.Pods["b"]; cut || len(got.Pods) != 2 {
		t.Errorf("the state is %+v, want a and c", got)
	}
}

// Somebody removes the file, or puts another one or something else in its place, while the agent
// runs: the next commit has all that is held, nobody waits, and nothing behind a link is touched.
func TestFileOfAnotherIsNotAppendedTo(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	for name, intrude := range map[string]func(path string) error{
		"removed": func(string) error { return nil },
		"pipe":    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link":    func(path string) error { return os.Symlink(target, path) },
		"other":   func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(t, t.TempDir())
			r.commit(allocation.Change{Put: smallPod("a", 1)})
			if err := errors.Join(os.Remove(r.Path), intrude(r.Path)); err != nil {
				t.Fatal(err)
			}
			r.commit(allocation.Change{Put: smallPod("b", 1)})
			r.check()
			if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the link's target: %v", err)
			}
		})
	}
	r := newRecorder(t, t.TempDir())
	r.commit(allocation.Change{Put: smallPod("a", 1)})
	if err := os.Truncate(r.Path, r.size()-1); err != nil {
		t.Fatal(err)
	}
	r.commit(allocation.Change{Put: smallPod("b", 1)})
	r.check()
}

// What cannot be synced is taken back, and the file begun anew with the next commit.
func TestFailedSyncIsTakenBack(t *testing.T) {
	r := newRecorder(t, t.TempDir())
	r.commit(allocation.Change{Put: smallPod("a", 1)})
	before := r.content()
	r.Sync = func(*os.File) error { return errors.New("no space") }
	change := allocation.Change{Put: smallPod("b", 1)}
	if err := r.record(r.state.With([]allocation.Change{change}), []allocation.Change{change}); err == nil {
		t.Fatal("no error")
	}
	if after := r.content(); !bytes.Equal(before, after) {
		t.Errorf("the file was\n%s\nand is\n%s", before, after)
	}
	r.Sync = (*os.File).Sync
	r.commit(allocation.Change{Put: smallPod("c", 1)})
	r.check()
	if lines := bytes.Count(r.content(), []byte("\n")); lines != 1 {
		t.Errorf("the file has %d lines, want a new one", lines)
	}
}

// Whatever stands in the state file's place at the start is moved aside, and the agent goes on.
func TestNoFileInTheStatesPlace(t *testing.T) {
	for name, intrude := range map[string]func(path string) error{
		"pipe":    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"endless": func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"huge": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxFile+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			err := errors.Join(intrude(path), unix.Mkfifo(files.Temporary(path), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if s == nil || !errors.Is(err, files.ErrUnusable) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open() = %v, %v", s, err)
			}
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
				t.Errorf("moved aside: %v", aside)
			}
			run(t, s)
			if err := s.Commit(t.Context(), allocation.Change{Put: smallPod("a", 1)}); err != nil {
				t.Error(err)
			}
			if n := len(mustOpen(t, dir).State().Pods); n != 1 {
				t.Errorf("%d pods in the file", n)
			}
		})
	}
}

// BenchmarkCommit is one pod that comes and goes beside others: its cost is its own, whatever they
// hold.
func BenchmarkCommit(b *testing.B) {
	for _, held := range []struct{ pods, answer int }{{60, 300}, {1000, 300}, {17, 1 << 20}} {
		b.Run(fmt.Sprintf("pods=%d/answer=%d", held.pods, held.answer), func(b *testing.B) {
			s, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			var all []allocation.Change
			for i := range held.pods {
				all = append(all, allocation.Change{Put: smallPod(fmt.Sprint("held-", i), held.answer)})
			}
			if err := s.Commit(ctx, all...); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := errors.Join(s.Commit(ctx, allocation.Change{Put: smallPod("a", 300)}),
					s.Commit(ctx, allocation.Change{Drop: "a"})); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
