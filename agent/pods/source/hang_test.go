package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// hanging makes a feed on dir. Its reads of files that contain "hang" hang until release is closed.
func hanging(t *testing.T, dir string) (f *File, release chan struct{}) {
	t.Helper()
	f, release = NewFile(FileConfig{Path: dir, Node: "node", Every: time.Hour}), make(chan struct{})
	f.reader.patience = 20 * time.Millisecond
	f.reader.bytes = func(path string) (content, error) {
		data, err := readManifest(path)
		if strings.Contains(string(data.text), "hang") {
			<-release
		}
		return data, err
	}
	return f, release
}

// runFeed runs the feed until the test ends, and sends the names of each set.
func runFeed(t *testing.T, f *File) (sets chan string, problems *Problems) {
	t.Helper()
	problems = NewProblems()
	f.c.Report, f.ledger.report = problems.Report, problems.Report
	sets = make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.Run(ctx, func(pods []*v1.Pod) {
			text := strings.Join(names(pods), " ")
			if f.Partial() {
				text += " ..."
			}
			sets <- text
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the feed does not end: it waits for a file that hangs")
		}
	})
	return sets, problems
}

func waitSet(t *testing.T, sets chan string, want string) {
	t.Helper()
	var last string
	limit := time.After(20 * time.Second)
	for {
		select {
		case last = <-sets:
			if last == want {
				return
			}
		case <-limit:
			t.Fatalf("the last set is %q, want %q", last, want)
		}
	}
}

func messageOf(problems *Problems, file string) string {
	for _, p := range problems.List() {
		if filepath.Base(p.Name) == file {
			return p.Message
		}
	}
	return ""
}

// waitMessage waits until the problem of that file has the text, or for "" until it has none.
func waitMessage(t *testing.T, problems *Problems, file, text string) {
	t.Helper()
	limit := time.Now().Add(20 * time.Second)
	for {
		got := messageOf(problems, file)
		if text != "" && strings.Contains(got, text) || text == got {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the problem with %s is %q, want %q", file, got, text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Files that hang are reported, and delay neither other files nor the end of the feed. Their pods
// appear when the reads return, and a file that replaces one that hangs is read at once.
func TestFilesThatHang(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		temporary := filepath.Join(dir, ".new")
		if err := os.WriteFile(temporary, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "is not read to its end"
	put("a.yaml", manifestOf("a"))
	for i := range 3 * maxReading {
		put(fmt.Sprintf("hang%02d.yaml", i), "# hang\n"+manifestOf(fmt.Sprintf("h%02d", i)))
	}
	f, release := hanging(t, dir)
	sets, problems := runFeed(t, f)
	waitSet(t, sets, "a-node ...")
	waitMessage(t, problems, "hang47.yaml", text)
	put("b.yaml", manifestOf("b"))
	waitSet(t, sets, "a-node b-node ...")
	put("hang00.yaml", manifestOf("mended"))
	waitSet(t, sets, "a-node b-node mended-node ...")
	waitMessage(t, problems, "hang00.yaml", "")
	put("b.yaml", "# hang\n"+manifestOf("b2")) // it keeps its pod
	waitMessage(t, problems, "b.yaml", text)
	if err := os.Remove(filepath.Join(dir, "hang01.yaml")); err != nil {
		t.Fatal(err)
	}
	waitMessage(t, problems, "hang01.yaml", "")
	close(release)
	want := []string{"a-node", "b2-node", "mended-node"}
	for i := 2; i < 3*maxReading; i++ {
		want = append(want, fmt.Sprintf("h%02d-node", i))
	}
	slices.Sort(want) // by name
	waitSet(t, sets, strings.Join(want, " "))
	waitMessage(t, problems, "hang47.yaml", "")
}

// The number of hanging calls is bounded, however many files hang.
func TestTooManyFilesHang(t *testing.T) {
	dir := t.TempDir()
	for i := range maxStuck + 50 {
		name := filepath.Join(dir, fmt.Sprintf("hang%03d.yaml", i))
		if err := os.WriteFile(name, []byte("# hang\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, release := hanging(t, dir)
	f.reader.patience = time.Millisecond
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.relist(ctx)
	f.relist(ctx)
	reading, refused := 0, 0
	for _, e := range f.entries {
		switch {
		case e.reading != nil:
			reading++
		case strings.Contains(e.unreadable.Message, "other files hang"):
			refused++
		}
	}
	if reading < maxStuck || reading >= maxStuck+maxReading || reading+refused != maxStuck+50 ||
		f.stuck != reading {
		t.Errorf("%d are being read, %d told of, %d stuck", reading, refused, f.stuck)
	}
}

// Files that hang at the start delay the removal of pods, but not forever.
func TestPartialForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFile(FileConfig{Path: "/nowhere"})
		f.delivery = delivery{began: time.Now()}
		never := &fileEntry{reading: &reading{}}
		f.entries["a"] = never
		if !f.isPartial() {
			t.Error("the set lacks a pod that nobody knows")
		}
		known := &fileEntry{reading: &reading{}, sum: [32]byte{1}}
		f.entries["a"] = known
		if f.isPartial() {
			t.Error("the pod of a file that was read before is known")
		}
		f.entries["a"] = never
		time.Sleep(unheard)
		if f.isPartial() {
			t.Error("it is waited for without end")
		}
	})
}

// hesitantFeed tells for each set whether it is partial.
type hesitantFeed struct {
	fakeFeed
	partial bool
}

func (f *hesitantFeed) Partial() bool { return f.partial }

func TestPartialSetsAreNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &hesitantFeed{fakeFeed{FileSource, make(chan []*v1.Pod)}, true}
		m := NewMux(MuxConfig{Feeds: []Feed{feed}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		seen := func() bool { return m.SeenAll(func(string) bool { return true }) }
		feed.sets <- []*v1.Pod{testPod("a")}
		if got := story([]Update{<-m.Updates()}); got[0] != "ADD a" {
			t.Errorf("a partial set has the updates %q", got)
		}
		synctest.Wait()
		if seen() {
			t.Error("a partial set counts as all that the source has")
		}
		feed.partial = false
		feed.sets <- []*v1.Pod{testPod("a")}
		synctest.Wait()
		if !seen() {
			t.Error("a whole set does not count")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A path that hangs is reported and fails the health check, and the feed can still end.
func TestPathThatHangs(t *testing.T) {
	f, release := hanging(t, t.TempDir())
	looks := f.lookAt
	f.lookAt = func(path string, watching bool) look {
		<-release
		return looks(path, watching)
	}
	sets, problems := runFeed(t, f)
	waitMessage(t, problems, filepath.Base(f.c.Path), "does not answer")
	m := NewMux(MuxConfig{Feeds: []Feed{f}})
	if err := m.Healthy(time.Now(), time.Minute); err != nil {
		t.Errorf("after a moment: %v", err)
	}
	if err := m.Healthy(time.Now().Add(2*time.Minute), time.Minute); err == nil {
		t.Error("it is healthy after two minutes")
	}
	close(release)
	waitSet(t, sets, "")
	waitMessage(t, problems, filepath.Base(f.c.Path), "")
	if err := m.Healthy(time.Now().Add(2*time.Minute), time.Minute); err != nil {
		t.Errorf("when it answers: %v", err)
	}
}

// The feed ends even if the path hangs forever; the cleanup in runFeed checks that.
func TestPathThatHangsForGood(t *testing.T) {
	f, release := hanging(t, t.TempDir())
	t.Cleanup(func() { close(release) }) // after the feed's end, or before
	f.lookAt = func(string, bool) look { <-release; return look{} }
	_, problems := runFeed(t, f)
	waitMessage(t, problems, filepath.Base(f.c.Path), "does not answer")
}

// Files whose content has no end are refused before the first read.
func TestEndlessFiles(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir)
	f.wait()
	pipe := filepath.Join(t.TempDir(), "pipe")
	f.must(unix.Mkfifo(pipe, 0o644))
	for name, target := range map[string]string{
		"kmsg": "/proc/kmsg", "zero": "/dev/zero", "pipe": pipe, "kernel": "/proc/version",
	} {
		f.must(os.Symlink(target, filepath.Join(dir, name)))
	}
	f.waitProblem("zero", "is no regular file")
	f.waitProblem("pipe", "is no regular file")
	f.waitProblem("kernel", "is empty")
	f.waitProblem("kmsg", "") // without permission the error says so
	f.put("a.yaml", manifestOf("a"))
	f.wait("a")
}
