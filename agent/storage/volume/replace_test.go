package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func text(s string) file { return file{data: []byte(s), mode: 0o644} }

func mustReplace(t *testing.T, dir string, files map[string]file) {
	t.Helper()
	if _, err := replace(dir, files, owner{}, nil); err != nil {
		t.Fatal(err)
	}
}

// versions returns the names in dir that are neither links to files nor ..data itself.
func versions(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..2") {
			out = append(out, e.Name())
		}
	}
	return out
}

// The layout is the kubelet's: programs look at the links.
func TestReplaceLayout(t *testing.T) {
	dir := t.TempDir()
	mustReplace(t, dir, map[string]file{"a": text("1"), "deep/er/b": text("2")})
	version, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil || len(versions(t, dir)) != 1 || versions(t, dir)[0] != version {
		t.Fatalf("..data leads to %q, %v; there are %q", version, err, versions(t, dir))
	}
	for name, want := range map[string]string{"a": "..data/a", "deep": "..data/deep"} {
		if got, err := os.Readlink(filepath.Join(dir, name)); got != want {
			t.Errorf("%s leads to %q, %v; want %q", name, got, err, want)
		}
	}
	if got := read(t, filepath.Join(dir, "deep/er/b")); got != "2" {
		t.Errorf("read %q", got)
	}
	mode := func(name string) fs.FileMode {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if mode("a") != 0o644 || mode("deep/er") != fs.ModeDir|0o755 || mode(version) !=
		fs.ModeDir|0o755 {
		t.Errorf("modes %v, %v, %v", mode("a"), mode("deep/er"), mode(version))
	}
}

// An unchanged file is not written again; a changed one is written as a whole.
func TestReplaceWritesOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	mustReplace(t, dir, map[string]file{"a": text("1"), "b": text("2")})
	first := versions(t, dir)
	mustReplace(t, dir, map[string]file{"./a": text("1"), "b": text("2")})
	if got := versions(t, dir); got[0] != first[0] {
		t.Errorf("the same files were written again: %q, then %q", first, got)
	}
	mustReplace(t, dir, map[string]file{"a": text("1"), "c": text("3")})
	if got := versions(t, dir); len(got) != 1 || got[0] == first[0] {
		t.Errorf("versions %q after %q", got, first)
	}
	if _, err := os.Lstat(filepath.Join(dir, "b")); err == nil {
		t.Error("a file that is gone still has its name")
	}
	if got := read(t, filepath.Join(dir, "c")); got != "3" {
		t.Errorf("read %q", got)
	}
}

// An unchanged file stays the same file in the next version, and the old version is removed; a file
// with another mode, owner or content is new.
func TestReplaceLinksWhatIsTheSame(t *testing.T) {
	dir := t.TempDir()
	inode := func(name string) uint64 {
		t.Helper()
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &s); err != nil {
			t.Fatal(err)
		}
		if s.Nlink != 1 {
			t.Errorf("%s has %d names: the version before is left", name, s.Nlink)
		}
		return s.Ino
	}
	before := map[string]file{"a": text("1"), "b": text("2"), "d/c": text("3"), "m": text("4")}
	mustReplace(t, dir, before)
	was := map[string]uint64{}
	for name := range before {
		was[name] = inode(name)
	}
	after := map[string]file{"a": text("1"), "b": text("3"), "d/c": text("3"),
		"m": {data: []byte("4"), mode: 0o400}}
	mustReplace(t, dir, after)
	isExactly(t, dir, after)
	for name, same := range map[string]bool{"a": true, "b": false, "m": false} {
		if now := inode(name); (now == was[name]) != same {
			t.Errorf("%s is inode %d after %d", name, now, was[name])
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "m")); err != nil || info.Mode() != 0o400 {
		t.Errorf("m: %v, %v", info, err)
	}
}

// A file whose path is also a directory is refused, with both names and always the same words,
// before anything is written.
func TestReplaceRefusesNestedPaths(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		files := map[string]file{"a": text("1"), "x": text("1"), "x/y": text("2"), "x/z": text("3")}
		_, err := replace(dir, files, owner{}, nil)
		const want = `invalid paths "x" and "x/y": the first is a file, and cannot be the directory ` +
			"of the second; change one of them"
		if err == nil || err.Error() != want {
			t.Fatalf("got %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Fatalf("%v were made, %v", entries, err)
		}
	}
	mustReplace(t, t.TempDir(), map[string]file{"x": text("1"), "xy/z": text("2"), "x.y": text("3")})
}

// The next call repairs whatever a crash at any point, or somebody else, left.
func TestReplaceMends(t *testing.T) {
	want := map[string]file{"a": text("1"), "d/b": text("2")}
	for name, spoil := range map[string]func(dir string) error{
		"a version that was not finished": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "..2020_01_01_00_00_00.1", "x"), 0o755)
		},
		"a link that was not renamed": func(dir string) error {
			return os.Symlink("nowhere", filepath.Join(dir, "..data_tmp"))
		},
		"no links": func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"..data is gone": func(dir string) error {
			return os.Remove(filepath.Join(dir, "..data"))
		},
		"..data leads away": func(dir string) error { return redirect(dir, "..data", "/etc") },
		"a link leads away": func(dir string) error { return redirect(dir, "a", "/etc/passwd") },
		"a directory in the way": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "d")); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(dir, "d", "x"), 0o755)
		},
		"a file that was cut": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "a"), 0)
		},
		"a name of before": func(dir string) error {
			return os.Symlink("..data/old", filepath.Join(dir, "old"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustReplace(t, dir, want)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			mustReplace(t, dir, want)
			isExactly(t, dir, want)
		})
	}
}

func redirect(dir, name, to string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		return err
	}
	return os.Symlink(to, filepath.Join(dir, name))
}

// isExactly checks that a reader finds the files and nothing else.
func isExactly(t interface {
	Helper()
	Errorf(string, ...any)
}, dir string, want map[string]file) {
	t.Helper()
	found := map[string]string{}
	top, err := os.ReadDir(dir)
	if err != nil {
		t.Errorf("%v", err)
	}
	hidden := 0
	for _, e := range top {
		if strings.HasPrefix(e.Name(), "..") {
			hidden++
			continue
		}
		at := filepath.Join(dir, e.Name())
		place, err := filepath.EvalSymlinks(at)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		_ = filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				data, _ := os.ReadFile(path)
				found[e.Name()+strings.TrimPrefix(path, place)] = string(data)
			}
			return nil
		})
	}
	if hidden != 2 {
		t.Errorf("there are %d hidden names, want ..data and one version", hidden)
	}
	if len(found) != len(want) {
		t.Errorf("found %q, want %d files", found, len(want))
	}
	for name, f := range want {
		if found[name] != string(f.data) {
			t.Errorf("%s is %q, want %q", name, found[name], f.data)
		}
	}
}

// Whatever was there before, afterwards the directory has what was asked for.
func TestReplaceAny(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "x/a", "x/b", "y/z/a"})
	contents := rapid.MapOf(name, rapid.SampledFrom([]string{"", "1", "22"}))
	base := t.TempDir()
	n := 0
	remembers := rapid.Bool()
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var last *version
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			files := map[string]file{}
			for name, data := range contents.Draw(t, "files") {
				files[name] = text(data)
			}
			if !remembers.Draw(t, "remembers") {
				last = nil
			}
			var err error
			if last, err = replace(dir, files, owner{}, last); err != nil {
				t.Fatal(err)
			}
			isExactly(t, dir, files)
		}
	})
}

// A reader that opens ..data once has all files of one time.
func TestReplaceIsAtomic(t *testing.T) {
	dir := t.TempDir()
	pair := func(n int) map[string]file {
		return map[string]file{"a": text(fmt.Sprint(n)), "b": text(fmt.Sprint(n))}
	}
	mustReplace(t, dir, pair(0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 200 {
			if _, err := replace(dir, pair(n), owner{}, nil); err != nil {
				t.Error(err)
			}
		}
	}()
	read := 0
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		at, err := os.OpenRoot(filepath.Join(dir, "..data"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its version was removed between the look at the link and at what it leads to
		}
		if err != nil {
			t.Error("a reader found no version: ", err)
			continue
		}
		read++
		a, errA := at.ReadFile("a")
		b, errB := at.ReadFile("b")
		at.Close()
		// A version that was replaced meanwhile may be half removed.
		if errA == nil && errB == nil && string(a) != string(b) {
			t.Errorf("a is %s, b is %s", a, b)
		}
	}
	if read == 0 {
		t.Error("nothing was read")
	}
}

func TestReplaceRefuses(t *testing.T) {
	for _, name := range []string{
		"/abs", "../up", "a/../../up", "a/..", "..hidden", "./..hidden", "", ".", "a/../..data",
		strings.Repeat("x", 256), strings.Repeat("x/", 2100) + "x",
	} {
		dir := t.TempDir()
		if _, err := replace(dir, map[string]file{name: text("x")}, owner{}, nil); err == nil {
			t.Errorf("%.40q was taken", name)
		}
		if got := tree(t, dir); len(got) != 0 {
			t.Errorf("%.40q left %q", name, got)
		}
	}
	dir := t.TempDir()
	if _, err := replace(dir, map[string]file{"a": text("x"), "a/b": text("y")}, owner{}, nil); err == nil {
		t.Error("a file that is a directory too was taken")
	}
}

func TestReplaceOwners(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	_, err := replace(dir, map[string]file{
		"token":  {data: []byte("t"), mode: 0o600, user: ptr.To[int64](1234)},
		"deep/x": {data: []byte("x"), mode: 0o400},
	}, owner{can: true, group: ptr.To[int64](4321)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"token": "-rw-r----- 1234 4321", "deep/x": "-r--r----- 0 4321",
		"deep": "dgrwxr-xr-x 0 4321", "..data": "dgrwxr-xr-x 0 4321",
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v %d %d", info.Mode(), s.Uid, s.Gid); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
