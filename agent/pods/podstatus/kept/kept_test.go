package kept

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func static(uid string) *v1.Pod {
	return podtest.New("default/"+uid, podtest.Source(source.FileSource),
		podtest.Annotations(podspec.AnnotationHash, uid))
}

func mirrorOf(p *v1.Pod, phase v1.PodPhase) *v1.Pod {
	m := p.DeepCopy()
	m.UID, m.Status.Phase = "m", phase
	m.Annotations[podspec.AnnotationMirror] = p.Annotations[podspec.AnnotationHash]
	return m
}

func open(t *testing.T, root string) *Statuses {
	t.Helper()
	s, err := Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// flush writes what is due, as the end of Run does.
func flush(t *testing.T, s *Statuses) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ended); err != nil {
		t.Fatal(err)
	}
}

func wrote(pod *v1.Pod, phase v1.PodPhase) podstatus.Change {
	return podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: phase}}
}

// The next run of the agent recalls the last that was told of a static pod, once. Of a pod that is
// gone, and of one that nobody desires any more, nothing stays.
func TestKept(t *testing.T) {
	root := t.TempDir()
	s, api := open(t, root), static("api")
	podtest.Source(podspec.APISource)(api)
	for _, c := range []podstatus.Change{
		wrote(static("a"), v1.PodPending), wrote(static("a"), v1.PodRunning),
		wrote(static("gone"), v1.PodRunning), wrote(static("undesired"), v1.PodRunning),
		wrote(api, v1.PodRunning), wrote(static("../b"), v1.PodRunning),
		{Pod: static("first"), After: v1.PodStatus{Phase: v1.PodPending}, First: true},
		{Pod: static("gone"), Before: v1.PodStatus{Phase: v1.PodRunning}},
	} {
		s.Wrote(c)
	}
	flush(t, s)
	if err := os.WriteFile(filepath.Join(root, Dir, "broken"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, root)
	for uid, want := range map[string]v1.PodPhase{
		"a": v1.PodRunning, "gone": "", "api": "", "first": "", "broken": "", "../b": "",
	} {
		if got := s.Recall(static(uid)).Phase; got != want {
			t.Errorf("%s: %q is recalled, want %q", uid, got, want)
		}
	}
	if got := s.Recall(static("a")).Phase; got != "" {
		t.Errorf("%q is recalled again", got)
	}
	s.Heard()
	flush(t, s)
	s = open(t, root)
	if a, b := s.Recall(static("a")).Phase, s.Recall(static("undesired")).Phase; a == "" || b != "" {
		t.Errorf("after all sources were heard %q and %q are recalled", a, b)
	}
}

// Of a status with any bit flipped nothing counts, and the status of an earlier version, which has no
// checksum, does.
func TestDamagedStatus(t *testing.T) {
	root := t.TempDir()
	s, path := open(t, root), filepath.Join(root, Dir, "a")
	change := wrote(static("a"), v1.PodRunning)
	change.After.ContainerStatuses = []v1.ContainerStatus{{Name: "main", RestartCount: 4}}
	s.Wrote(change)
	flush(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recall := func(content []byte) v1.PodStatus {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return open(t, root).Recall(static("a"))
	}
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1
		got := recall(damaged)
		if got.Phase != "" && !reflect.DeepEqual(got, change.After) {
			t.Errorf("flipped at %d: %+v", at, got)
		}
	}
	if got := recall(whole); !reflect.DeepEqual(got, change.After) {
		t.Errorf("whole: %+v", got)
	}
	if got := recall([]byte(`{"phase":"Running"}`)); got.Phase != v1.PodRunning {
		t.Errorf("of an earlier version: %+v", got)
	}
}

// What stands in the folder's place is moved aside, and statuses are kept again.
func TestNoFolderOfStatuses(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"a file":          func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a dangling link": func(path string) error { return os.Symlink("none", path) },
	} {
		root := t.TempDir()
		if err := put(filepath.Join(root, Dir)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), root)
		if aside, _ := filepath.Glob(filepath.Join(root, Dir+".corrupt-*")); s == nil ||
			!errors.Is(err, files.ErrUnusable) || len(aside) != 1 {
			t.Fatalf("%s: %v, %v is aside", what, err, aside)
		}
		s.Wrote(wrote(static("a"), v1.PodRunning))
		flush(t, s)
		if got := open(t, root).Recall(static("a")).Phase; got != v1.PodRunning {
			t.Errorf("%s: %q is recalled", what, got)
		}
	}
}

// What was not kept is recalled from the mirror pod, of those that the API server had at first.
func TestMirrored(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	s.Wrote(wrote(static("a"), v1.PodRunning))
	flush(t, s)
	s = open(t, root)
	a, b, c, d := static("a"), static("b"), static("c"), static("d")
	other := mirrorOf(c, v1.PodRunning)
	other.Annotations[podspec.AnnotationMirror] = "before"
	plain := mirrorOf(d, v1.PodRunning)
	delete(plain.Annotations, podspec.AnnotationMirror)
	if !s.Mirrored([]*v1.Pod{mirrorOf(a, v1.PodFailed), mirrorOf(b, v1.PodRunning), other, plain}) {
		t.Error("the first pods of the API server are no news")
	}
	if s.Mirrored([]*v1.Pod{mirrorOf(d, v1.PodRunning)}) {
		t.Error("those after the first are news")
	}
	for pod, want := range map[*v1.Pod]v1.PodPhase{a: v1.PodRunning, b: v1.PodRunning, c: "", d: ""} {
		if got := s.Recall(pod).Phase; got != want {
			t.Errorf("%s: %q is recalled, want %q", pod.Name, got, want)
		}
	}
}

// A status counts while the pod runs, and an end only if the runtime has the pod ended.
func TestRecallFor(t *testing.T) {
	running := cri.Pod{Sandboxes: []cri.Sandbox{{Ready: true}},
		Containers: []cri.Container{{Name: "main", State: cri.ContainerRunning}}}
	exited := cri.Pod{Sandboxes: []cri.Sandbox{{}},
		Containers: []cri.Container{{Name: "main", State: cri.ContainerExited}}}
	for _, c := range []struct {
		name      string
		published v1.PodPhase
		observed  cri.Pod
		recorded  bool
		counts    bool
	}{
		{"runs still", v1.PodRunning, running, true, true},
		{"stopped meanwhile", v1.PodRunning, exited, true, false},
		{"the runtime has nothing of it", v1.PodRunning, cri.Pod{}, false, false},
		{"ended", v1.PodSucceeded, exited, true, true},
		{"refused, or ended by the node", v1.PodFailed, running, true, false},
		{"ended by a reboot", v1.PodFailed, cri.Pod{}, false, false},
	} {
		root := t.TempDir()
		s := open(t, root)
		pod := static("a")
		podtest.Line("Never main")(pod)
		s.Wrote(wrote(pod, c.published))
		flush(t, s)
		got := open(t, root).RecallFor(pod, c.observed, c.recorded).Phase
		if want := map[bool]v1.PodPhase{true: c.published}[c.counts]; got != want {
			t.Errorf("%s: %q is recalled, want %q", c.name, got, want)
		}
	}
}
