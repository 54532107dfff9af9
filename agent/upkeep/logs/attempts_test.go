package logs

import (
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
		tree(t, dir, nil, filepath.Join(web, name))
	}
	if got := place.Next(pod.Reference(), "web"); got != 13 {
		t.Errorf("after 12: %d", got)
	}
	keep := func() []string {
		t.Helper()
		if err := place.Keep(pod, cri.Container{Name: "web", Attempt: 12}); err != nil {
			t.Error(err)
		}
		return list(t, filepath.Join(dir, web))
	}
	if got := keep(); len(got) != 9 {
		t.Errorf("of five attempts %q are left", got)
	}
	tree(t, dir, nil, filepath.Join(web, "13.log"), filepath.Join(web, "14.log"))
	want := []string{"10.log", "11.log", "12.log", "13.log", "14.log", "notes.log", "other"}
	if got := keep(); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}
