package logs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
)

// tree makes files, two minutes old unless their name contains "new". Values of links are targets.
func tree(t *testing.T, dir string, links map[string]string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		p = filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// age makes a directory or file old.
func age(t *testing.T, path string) {
	t.Helper()
	old := time.Now().Add(-2 * young)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

// TestSweep: directories of pods that are neither known nor in the runtime are removed once all
// pods have been known for a look. Foreign and new directories stay.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, nil, "n_known_u1/c/0.log", "n_runs_u2/c/0.log", "n_gone_u3/c/0.log",
		"n_new_u4/c/0.log", "someone/else", "n_file_u5")
	for _, name := range list(t, dir) {
		if name != "n_new_u4" {
			age(t, filepath.Join(dir, name))
		}
	}
	ready := false
	s := &Sweep{
		Place: logfiles.Place{Dir: dir}, Ready: func() bool { return ready },
		Known:   func(uid types.UID) bool { return uid == "u1" },
		Running: func() []cri.Pod { return []cri.Pod{{UID: "u2"}} },
	}
	all := list(t, dir)
	for i := range 3 {
		ready = i > 0
		if err := s.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := all
		if i == 2 {
			want = []string{"n_file_u5", "n_known_u1", "n_new_u4", "n_runs_u2", "someone"}
		}
		if got := list(t, dir); !slices.Equal(got, want) {
			t.Errorf("after look %d: %q, want %q", i, got, want)
		}
	}
}

// TestLinks: a link to a missing log is removed unless its container runs or the link is new or
// foreign.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	logs, links := filepath.Join(dir, "logs"), filepath.Join(dir, "links")
	tree(t, logs, nil, "n_pod_u/c/1.log")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	gone := logs + "/n_pod_u/c/0.log"
	tree(t, links, map[string]string{
		"pod_n_c-id0.log": gone, "pod_n_c-id1.log": logs + "/n_pod_u/c/1.log",
		"pod_n_c-runs.log": gone, "theirs-id.log": dir + "/nothing",
	}, "plain-file.log")
	s := &Sweep{
		Place: logfiles.Place{Dir: logs, Links: links}, Ready: func() bool { return true },
		Known: func(types.UID) bool { return true },
		Running: func() []cri.Pod {
			return []cri.Pod{{Containers: []cri.Container{
				{ID: "runs", State: cri.ContainerRunning}, {ID: "id0", State: cri.ContainerExited},
			}}}
		}, was: true,
	}
	look := func(want ...string) {
		t.Helper()
		if err := s.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := list(t, links); !slices.Equal(got, want) {
			t.Errorf("links %q, want %q", got, want)
		}
	}
	look("plain-file.log", "pod_n_c-id0.log", "pod_n_c-id1.log", "pod_n_c-runs.log",
		"theirs-id.log")
	backdate(t, links)
	look("plain-file.log", "pod_n_c-id1.log", "pod_n_c-runs.log", "theirs-id.log")
}

// TestRemove: a container's log, its rotated files and the link are removed, and nothing of another
// container.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	p := logfiles.Place{Dir: filepath.Join(dir, "logs"), Links: filepath.Join(dir, "links")}
	pod := cri.Pod{UID: "u", Namespace: "n", Name: "pod"}
	c := cri.Container{ID: "id", Name: "c", Attempt: 1}
	in := "n_pod_u/c/"
	tree(t, p.Dir, nil, in+"0.log", in+"1.log", in+"1.log.20260102-150405",
		in+"1.log.20260102-150404.gz", in+"1.log.20260102-150403.tmp", in+"11.log", in+"2.log")
	if err := os.Mkdir(p.Links, 0o755); err != nil {
		t.Fatal(err)
	}
	tree(t, p.Links, map[string]string{"pod_n_c-id.log": "x", "pod_n_c-id2.log": "x"})
	for range 2 {
		if err := p.Remove(pod, c); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, filepath.Join(p.Dir, in)); !slices.Equal(got,
		[]string{"0.log", "11.log", "2.log"}) {
		t.Errorf("logs left: %q", got)
	}
	if got := list(t, p.Links); !slices.Equal(got, []string{"pod_n_c-id2.log"}) {
		t.Errorf("links left: %q", got)
	}
}

// backdate makes all links in a directory old.
func backdate(t *testing.T, dir string) {
	t.Helper()
	old := unix.NsecToTimeval(time.Now().Add(-2 * young).UnixNano())
	for _, name := range list(t, dir) {
		err := unix.Lutimes(filepath.Join(dir, name), []unix.Timeval{old, old})
		if err != nil {
			t.Fatal(err)
		}
	}
}
