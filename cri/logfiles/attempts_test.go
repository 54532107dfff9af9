package logfiles

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/numalet/numalet/cri"
)

// TestAttempts: the next attempt follows all that have a log. After their records are removed, only
// the logs of the latest attempts stay.
func TestAttempts(t *testing.T) {
	dir := t.TempDir()
	place, pod := Place{Dir: dir}, cri.Pod{Namespace: "ns", Name: "pod", UID: "uid"}
	if got := place.Next(pod.Reference(), "web"); got != 0 {
		t.Errorf("before the first: %d", got)
	}
	web := filepath.Join("ns_pod_uid", "web")
	for _, name := range []string{"9.log", "10.log", "11.log", "12.log", "8.log",
		"9.log.20260102-030405.gz", "notes.log", "8.log.20260102-030405.gz.tmp", "other"} {
		write(t, dir, filepath.Join(web, name))
	}
	if got := place.Next(pod.Reference(), "web"); got != 13 {
		t.Errorf("after 12: %d", got)
	}
	keep := func() []string {
		t.Helper()
		if err := place.Keep(pod, cri.Container{Name: "web", Attempt: 12}); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(filepath.Join(dir, web))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := keep(); len(got) != 9 {
		t.Errorf("of five attempts %q are left", got)
	}
	write(t, dir, filepath.Join(web, "13.log"), filepath.Join(web, "14.log"))
	want := []string{"10.log", "11.log", "12.log", "13.log", "14.log", "notes.log", "other"}
	if got := keep(); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// write makes files, with their folders.
func write(t *testing.T, dir string, paths ...string) {
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
}
