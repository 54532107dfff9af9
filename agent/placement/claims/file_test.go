package claims

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// recorder is a book, with how often its file was synced.
type recorder struct {
	*book
	t     *testing.T
	dir   string
	syncs int
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{t: t, dir: t.TempDir()}
	r.open()
	return r
}

// open starts the agent anew.
func (r *recorder) open() {
	r.t.Helper()
	var err error
	if r.book, err = openBook(r.dir, "boot"); err != nil {
		r.t.Fatal(err)
	}
	r.export = &export{path: filepath.Join(r.dir, KubeletFile)}
	r.file.Sync = func(f *os.File) error {
		r.syncs++
		return f.Sync()
	}
}

// path is the file's.
func (r *recorder) path() string { return filepath.Join(r.dir, FileName) }

// use has a pod use a claim, whose driver is about to be called.
func (r *recorder) use(name string) {
	r.t.Helper()
	u := Use{Use: claim.Use{Claim: dra.Claim{Namespace: "ns", Name: name, UID: types.UID(name)},
		Devices: []claim.Device{{Request: "r", Driver: gpus, Pool: "n", Name: "d"}}}}
	err := r.apply(func(d *draft) error {
		return errors.Join(d.step(keyOf(name), Event{Kind: Used, Use: u, User: User{UID: "pod"}}),
			d.step(keyOf(name), Event{Kind: PrepareSent, Driver: gpus}))
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// answered records the driver's answer.
func (r *recorder) answered(name string) {
	r.t.Helper()
	if err := r.applyAnswers(func(d *draft) error {
		return d.step(keyOf(name), Event{Kind: WasPrepared, Driver: gpus})
	}); err != nil {
		r.t.Fatal(err)
	}
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func (r *recorder) stages() (out string) {
	for _, one := range r.records().list() {
		out += fmt.Sprintf("%s %s; ", one.Name, one.Drivers[0].Stage)
	}
	return out
}

func (r *recorder) want(stages string, syncs int) {
	r.t.Helper()
	if got := r.stages(); got != stages || r.syncs != syncs {
		r.t.Errorf("%s after %d syncs, want %s after %d", got, r.syncs, stages, syncs)
	}
}

// A change costs a line. What is sent is synced; what is answered is not, and outlives the process.
func TestLines(t *testing.T) {
	r := newRecorder(t)
	r.use("a") // begins the file, which is synced in another way
	r.answered("a")
	r.want("a Prepared; ", 0)
	r.use("b")
	r.want("a Prepared; b Preparing; ", 1)
	r.answered("b")
	r.want("a Prepared; b Prepared; ", 1)
	raw, err := os.ReadFile(r.path())
	if err != nil || bytes.Count(raw, []byte("\n")) != 4 {
		t.Errorf("%v: the file has\n%s", err, raw)
	}
	r.open()
	r.want("a Prepared; b Prepared; ", 1)
	if err := r.apply(func(d *draft) error {
		d.edits[keyOf("a")] = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.answered("b") // changes nothing
	r.use("c")
	for range 2 {
		r.want("b Prepared; c Preparing; ", 2)
		r.open()
	}
}

// Of a file whose end was being written the rest counts; one that is damaged elsewhere does not.
func TestCutLines(t *testing.T) {
	r := newRecorder(t)
	for _, name := range []string{"a", "b", "c"} {
		r.use(name)
	}
	whole, err := os.ReadFile(r.path())
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	last := len(whole) - len(lines[2])
	for cut := last; cut < len(whole); cut++ {
		want := 2
		if cut == len(whole)-1 { // only the line end is missing
			want = 3
		}
		for _, tail := range []string{"", strings.Repeat("\x00", 512)} {
			in, err := parse(append(bytes.Clone(whole[:cut]), tail...))
			if tail != "" {
				want = 2
			}
			if err != nil || len(in.Claims) != want {
				t.Fatalf("cut at %d, and %d bytes: %d claims, %v", cut, len(tail), len(in.Claims), err)
			}
		}
	}
	damaged := bytes.Clone(whole)
	damaged[len(lines[0])+40] ^= 1
	if in, err := parse(damaged); err == nil {
		t.Errorf("damaged in the middle: %+v", in)
	}
}

// The file of an agent that wrote no lines is read.
func TestOldFile(t *testing.T) {
	r := newRecorder(t)
	text := `{
  "version": "v1", "bootID": "boot",
  "claims": [{"namespace": "ns", "name": "a", "uid": "a", "users": [{"uid": "pod"}], "drivers": [
    {"name": "gpu.example.com", "stage": "Prepared", "since": "2026-01-02T03:04:05Z", "skips": {}}]}]
}
`
	if err := os.WriteFile(r.path(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.use("b")
	r.open()
	r.want("a Prepared; b Preparing; ", 0)
}

// What was not synced is not believed, and the next change begins the file anew.
func TestUnsynced(t *testing.T) {
	r := newRecorder(t)
	r.use("a")
	r.file.Sync = func(*os.File) error { return errors.New("no space") }
	err := r.apply(func(d *draft) error {
		return d.step(keyOf("a"), Event{Kind: UnprepareSent, Driver: gpus})
	})
	if err == nil || !strings.Contains(err.Error(), "record resource claims: ") {
		t.Errorf("error %v", err)
	}
	r.want("a Preparing; ", 0)
	r.answered("a")
	r.open()
	r.want("a Prepared; ", 0)
}

// The file stays within twice what is recorded, and a bit.
func TestFileIsBegunAnew(t *testing.T) {
	r := newRecorder(t)
	r.use("a")
	begins := 0
	size := func() int64 {
		info, err := os.Stat(r.file.Path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for was := size(); begins < 2; was = size() {
		r.use("b")
		r.answered("b")
		if err := r.applyAnswers(func(d *draft) error {
			d.edits[keyOf("b")] = nil
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if size() < was {
			begins++
		}
		if size() > journalSlack+4096 {
			t.Fatalf("the file has %d bytes", size())
		}
	}
}
