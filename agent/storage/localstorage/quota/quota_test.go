package quota

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// counting runs a test on each filesystem that counts projects: NUMALET_PRJQUOTA lists directories on
// some. The test in the emulated machine makes them, ext4 and xfs (test/numa).
func counting(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	all := filepath.SplitList(os.Getenv("NUMALET_PRJQUOTA"))
	if len(all) == 0 {
		t.Skip("NUMALET_PRJQUOTA names no directory on a filesystem with the mount option prjquota")
	}
	for _, at := range all {
		t.Run(filepath.Base(at), func(t *testing.T) {
			dir, err := os.MkdirTemp(at, "quota-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			test(t, dir)
		})
	}
}

func made(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCounts: what is written to a directory with a project counts, and nothing else does. It
// counts for another run of the agent as well, and after the directory was removed its project is
// free.
func TestCounts(t *testing.T) { counting(t, testCounts) }

func testCounts(t *testing.T, dir string) {
	a, b := made(t, dir, "a"), made(t, dir, "b")
	projects := &Assigner{}
	if _, counts := Used(a); counts {
		t.Error("a directory without a project counts")
	}
	for _, path := range []string{a, b, a} {
		if err := projects.Assign(path); err != nil {
			t.Fatal(err)
		}
	}
	below := made(t, a, "below")
	if err := os.WriteFile(filepath.Join(below, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	flush(t, filepath.Join(below, "file"))
	got, counts := Used(a)
	if !counts || got.Inodes != 3 || got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("with a directory and a file of 1 MiB it counts %+v, %t", got, counts)
	}
	if other, counts := Used(b); !counts || other.Inodes != 1 {
		t.Errorf("the other directory counts %+v, %t", other, counts)
	}
	if _, counts := Used(below); counts {
		t.Error("a directory that inherited its project counts by itself")
	}
	first := projectAt(t, a)
	if err := os.RemoveAll(a); err != nil {
		t.Fatal(err)
	}
	awaitFree(t, dir, first)
	again := &Assigner{}
	if err := again.Assign(made(t, dir, "c")); err != nil {
		t.Fatal(err)
	}
	if got := projectAt(t, filepath.Join(dir, "c")); got != first {
		t.Errorf("after project %d was freed another run assigned %d", first, got)
	}
}

// awaitFree waits until a project counts nothing: xfs counts what was deleted for a moment longer.
func awaitFree(t *testing.T, path string, project uint32) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for range 600 {
		if used, err := counted(dir, project); err != nil || used.Inodes == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestAssignAtOnce: directories that are made at once have projects of their own, and none that a
// file names.
func TestAssignAtOnce(t *testing.T) { counting(t, testAssignAtOnce) }

func testAssignAtOnce(t *testing.T, dir string) {
	list := filepath.Join(t.TempDir(), "projects")
	if err := os.WriteFile(list, []byte("1048578:/somewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	projects := &Assigner{files: []string{list}}
	var all sync.WaitGroup
	var paths []string
	for i := range 16 {
		path := made(t, dir, string(rune('a'+i)))
		paths = append(paths, path)
		all.Go(func() {
			if err := projects.Assign(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[uint32]string{1048578: list}
	for _, path := range paths {
		project := projectAt(t, path)
		if project < first || seen[project] != "" {
			t.Errorf("%s has project %d, as %s", path, project, seen[project])
		}
		seen[project] = path
	}
}

func projectAt(t *testing.T, path string) uint32 {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	x, err := attributes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return x.project
}

// flush writes a file out: blocks are counted when they are allocated.
func flush(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutQuotas: where the filesystem counts nothing, there is no error, and nothing counts.
// What is not there is an error.
func TestWithoutQuotas(t *testing.T) {
	dir := "/proc/sys"
	if err := New().Assign(dir); err != nil {
		t.Errorf("it says %v", err)
	}
	if got, counts := Used(dir); counts {
		t.Errorf("it counts %+v", got)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if err := New().Assign(gone); err == nil {
		t.Error("of what is gone it says nothing")
	}
	if _, counts := Used(gone); counts {
		t.Error("what is gone counts")
	}
}

// TestReadProjects: both forms of lines name numbers; others are passed over.
func TestReadProjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "projects")
	text := "# 7:x\n1048576:/var/lib\nvolume1048577:1048577\nbad\n99999999999:/too/large\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	named := map[uint32]bool{}
	if err := readProjects(path, named); err != nil || len(named) != 2 || !named[1048576] || !named[1048577] {
		t.Errorf("it read %v, %v", named, err)
	}
	if err := readProjects(path+"x", named); err != nil {
		t.Errorf("of a file that is not there it says %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readProjects(path, named); err == nil {
		t.Error("of a line without an end it says nothing")
	}
}
