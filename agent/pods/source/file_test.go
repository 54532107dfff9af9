package source

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// manifest returns a minimal pod of that name.
func manifestOf(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"+
		"spec: {containers: [{name: c, image: example.com/i:1}]}\n", name)
}

// followed is a running File feed.
type followed struct {
	t    *testing.T
	path string
	sets chan []*v1.Pod

	mu       sync.Mutex
	problems []complaint.Problem
}

// follow runs a feed on path until the test ends. The next complete read is a day away, so the
// tests see only the effect of events.
func follow(t *testing.T, path string) *followed {
	t.Helper()
	f := &followed{t: t, path: path, sets: make(chan []*v1.Pod, 100)}
	feed := NewFile(FileConfig{Path: path, Node: "node", Every: 24 * time.Hour, Report: f.report})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx, func(pods []*v1.Pod) { f.sets <- pods }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *followed) report(p complaint.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = append(f.problems, p)
}

// wait takes sets until one has exactly these pods.
func (f *followed) wait(want ...string) []*v1.Pod {
	f.t.Helper()
	for i := range want {
		want[i] += "-node"
	}
	var last []string
	limit := time.After(20 * time.Second)
	for {
		select {
		case pods := <-f.sets:
			if last = names(pods); slices.Equal(last, want) {
				return pods
			}
		case <-limit:
			f.t.Fatalf("pods %v, want %v; problems %+v", last, want, f.reported())
		}
	}
}

func (f *followed) reported() []complaint.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.problems)
}

// waitProblem waits for a problem of the file with that text.
func (f *followed) waitProblem(file, text string) {
	f.t.Helper()
	f.waitReport(func(p complaint.Problem) bool {
		return filepath.Base(p.Name) == file && p.Message != "" && strings.Contains(p.Message, text)
	}, "no problem of "+file+" with "+text)
}

// waitOver waits until the problem of the file is over.
func (f *followed) waitOver(file string) {
	f.t.Helper()
	f.waitReport(func(p complaint.Problem) bool {
		return filepath.Base(p.Name) == file && p.Message == ""
	}, "the problem of "+file+" is not over")
}

func (f *followed) waitReport(is func(complaint.Problem) bool, otherwise string) {
	f.t.Helper()
	limit := time.Now().Add(20 * time.Second)
	for time.Now().Before(limit) {
		if slices.ContainsFunc(f.reported(), is) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	f.t.Fatalf("%s in %+v", otherwise, f.reported())
}

func (f *followed) put(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.path, name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followed) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestFileFollowsDirectory(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	f.put("b.yaml", manifestOf("b"))
	f.wait("b")
	f.put("a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},`+
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	f.put(".hidden", manifestOf("c"))
	f.wait("a", "b")
	f.must(os.Rename(filepath.Join(dir, ".hidden"), filepath.Join(dir, "c")))
	f.wait("a", "b", "c")
	f.must(os.Remove(filepath.Join(dir, "a.json")))
	f.wait("b", "c")
	f.must(os.Rename(filepath.Join(dir, "c"), filepath.Join(t.TempDir(), "c")))
	f.wait("b")
	f.must(os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	f.put("sub/d.yaml", manifestOf("d"))
	f.must(os.Link(filepath.Join(dir, "sub/d.yaml"), filepath.Join(dir, "e.yaml")))
	f.wait("b", "d")
	f.must(os.Symlink("sub", filepath.Join(dir, "link")))
	f.must(os.RemoveAll(dir))
	f.wait()
	// In one step: a complete read, as for a new directory, cannot know of files being written.
	f.must(os.WriteFile(dir+"-z", []byte(manifestOf("z")), 0o644))
	f.must(os.Mkdir(dir, 0o755))
	f.must(os.Rename(dir+"-z", filepath.Join(dir, "z.yaml")))
	f.wait("z")
	f.waitProblem("sub", "is a directory")
	f.waitOver("sub")
	for _, p := range f.reported() {
		name := filepath.Base(p.Name)
		if name != "sub" && name != "link" && (p.Name != dir || p.Reason != manifest.Absent && p.Reason != "") {
			t.Errorf("problem %+v", p)
		}
	}
}

func TestFileFollowsSingleFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod.yaml")
	f := follow(t, path)
	f.wait()
	f.must(os.WriteFile(filepath.Join(filepath.Dir(path), "other.yaml"), []byte(manifestOf("x")),
		0o644))
	f.must(os.WriteFile(path, []byte(manifestOf("a")), 0o644))
	f.wait("a")
	f.must(os.WriteFile(path, []byte(manifestOf("b")), 0o644))
	f.wait("b")
	f.must(os.Remove(path))
	f.wait()
	f.must(os.Mkdir(path, 0o755))
	f.put("c.yaml", manifestOf("c"))
	f.wait("c")
}

// TestFileAbsentDirectory: even the parent directory does not exist.
func TestFileAbsentDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there")
	f := follow(t, path)
	f.wait()
	f.waitProblem("there", "is not there, so no pods come from it: make the folder")
	f.must(os.MkdirAll(path, 0o755))
	f.waitOver("there")
	f.put("a.yaml", manifestOf("a"))
	f.wait("a")
}

// TestFileHalfWritten: a file has no effect before its writer closes it.
func TestFileHalfWritten(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	file, err := os.Create(filepath.Join(dir, "a.yaml"))
	f.must(err)
	defer file.Close()
	// The first half alone would be a valid pod.
	_, err = file.WriteString(manifestOf("a"))
	f.must(err)
	f.put("b.yaml", manifestOf("b"))
	f.wait("b")
	_, err = file.WriteString("# the end\n")
	f.must(err)
	f.must(file.Close())
	f.wait("a", "b")
	if got := f.reported(); len(got) != 0 {
		t.Errorf("problems: %+v", got)
	}
}

// TestFileReplacedByEditor: a file that is moved away and written again keeps its pod.
func TestFileReplacedByEditor(t *testing.T) {
	dir := t.TempDir()
	f := NewFile(FileConfig{Path: dir, Node: "node"})
	name := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(name, []byte(manifestOf("a")), 0o644); err != nil {
		t.Fatal(err)
	}
	f.relist(t.Context())
	before := f.pods()[0]
	vanished := gone{}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	moved := []dirEvent{{"a.yaml", unix.IN_MOVED_FROM}}
	if f.handle(t.Context(), moved, vanished) || len(vanished) != 1 {
		t.Errorf("the pod went at once; vanished %v", vanished)
	}
	if err := os.WriteFile(name, []byte(manifestOf("a")), 0o644); err != nil {
		t.Fatal(err)
	}
	f.read(t.Context(), []reading{{name: "a.yaml"}})
	if after := f.pods()[0]; !apiequality.Semantic.DeepEqual(after, before) {
		t.Errorf("the pod changed from %+v to %+v", before, after)
	}
}

// TestFileRemovedAndWritten: an observed deletion removes the pod, however soon the same manifest
// exists again.
func TestFileRemovedAndWritten(t *testing.T) {
	dir := t.TempDir()
	var sets [][]string
	f := NewFile(FileConfig{Path: dir, Node: "node"})
	f.delivery = delivery{began: time.Now(), deliver: func(pods []*v1.Pod) {
		var names []string
		for _, p := range pods {
			names = append(names, strings.TrimSuffix(p.Name, "-node"))
		}
		sets = append(sets, names)
	}}
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(manifestOf(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.tell(f.relist(t.Context()))
	f.tell(f.handle(t.Context(), []dirEvent{{"a", unix.IN_DELETE}, {"a", unix.IN_CREATE},
		{"a", unix.IN_CLOSE_WRITE}, {"other", unix.IN_DELETE}}, gone{}))
	if diff := cmp.Diff([][]string{{"a", "b"}, {"b"}, {"a", "b"}}, sets); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// A file that was moved away is waited for once.
func TestGoneFilesSettle(t *testing.T) {
	start := time.Now()
	g := gone{"moved": start.Add(movedSettle)}
	for _, step := range []struct {
		after time.Duration
		want  map[string]bool
	}{
		{movedSettle - 1, map[string]bool{}},
		{movedSettle, map[string]bool{"moved": true}},
		{time.Hour, map[string]bool{}},
	} {
		if got := g.takeDue(start.Add(step.after)); !maps.Equal(got, step.want) {
			t.Errorf("after %v: %v, want %v", step.after, got, step.want)
		}
	}
}

func TestFileBadManifests(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	f.put("good.yaml", manifestOf("good"))
	f.wait("good")
	bad := map[string][2]string{
		"truncated": {manifestOf("x")[:60] + "\nspec: {", "is not YAML or JSON"},
		"kind": {"apiVersion: apps/v1\nkind: Deployment\n",
			`found apiVersion "apps/v1" and kind "Deployment"`},
		"list": {"apiVersion: v1\nkind: PodList\nitems: []\n",
			"a file holds one Pod, found a PodList"},
		"binary":  {"\x7fELF\x01\x02\x00\x00\xff", "is not YAML or JSON"},
		"huge":    {strings.Repeat("# 0123456789\n", 11<<20/13), "larger than 10 MiB"},
		"empty":   {"", "is empty"},
		"several": {manifestOf("x") + "---\n" + manifestOf("y"), "holds 2 documents"},
		"outside": {manifestOf("../../x"), "metadata.name: Invalid value"},
		"twice":   {manifestOf("good"), "pod default/good-node is in " + dir + "/good.yaml already"},
		"type": {strings.Replace(manifestOf("x"), "example.com/i:1", "[1]", 1),
			"spec.containers[0].image: want a string, found a list"},
	}
	for name, c := range bad {
		f.put(name, c[0])
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.waitProblem("pipe", "is no regular file")
	for name, c := range bad {
		f.waitProblem(name, c[1])
	}
	f.put("last.yaml", manifestOf("last"))
	f.wait("good", "last")
	// Reading the same files again reports nothing new.
	before := len(f.reported())
	f.must(os.Chmod(filepath.Join(dir, "kind"), 0o600))
	f.must(os.WriteFile(filepath.Join(dir, "list"), []byte(bad["list"][0]), 0o644))
	f.put("more.yaml", manifestOf("more"))
	f.wait("good", "last", "more")
	if after := f.reported(); len(after) != before {
		t.Errorf("reported again: %+v", after[before:])
	}
	for _, p := range f.reported() {
		if strings.ContainsAny(p.Message, "\n\r") || p.Source != FileSource || p.Reason == "" {
			t.Errorf("problem %+v", p)
		}
	}
}

func TestFileThatTurnsBadKeepsItsPod(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.put("a.yaml", manifestOf("a"))
	first := f.wait("a")[0]
	f.put("a.yaml", "kind: [")
	f.waitProblem("a.yaml", "is not YAML or JSON")
	f.put("b.yaml", manifestOf("b"))
	if again := f.wait("a", "b")[0]; again != first {
		t.Errorf("another pod: %v, was %v", again.UID, first.UID)
	}
	f.put("a.yaml", manifestOf("a2"))
	f.wait("a2", "b")
}

func TestFileLinkedDirectoryExchanged(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	link := func(target, name string) {
		t.Helper()
		f.must(os.Symlink(target, filepath.Join(dir, ".tmp")))
		f.must(os.Rename(filepath.Join(dir, ".tmp"), filepath.Join(dir, name)))
	}
	f.must(os.MkdirAll(filepath.Join(dir, "..1"), 0o755))
	f.must(os.MkdirAll(filepath.Join(dir, "..2"), 0o755))
	f.put("..1/a.yaml", manifestOf("one"))
	f.put("..2/a.yaml", manifestOf("two"))
	link("..1", "..data")
	link("..data/a.yaml", "a.yaml")
	f.wait("one")
	link("..2", "..data")
	f.wait("two")
}

func TestFileManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	var want []string
	for i := range 200 {
		name := fmt.Sprintf("p%03d", i)
		want = append(want, name)
		f.put(name+".yaml", manifestOf(name))
	}
	f.wait(want...)
}

func TestParseEvents(t *testing.T) {
	header := func(mask, length byte) []byte {
		return append(append(bytes.Repeat([]byte{0}, 4), mask, 0, 0, 0),
			append(make([]byte, 4), length, 0, 0, 0)...)
	}
	raw := slices.Concat(header(2, 16),
		[]byte("name\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), header(8, 0))
	got := parseEvents(raw)
	if want := []dirEvent{{"name", 2}, {"", 8}}; !slices.Equal(got, want) {
		t.Errorf("parseEvents: %v, want %v", got, want)
	}
	for cut := range raw {
		parseEvents(raw[:cut]) // does not panic
	}
}
