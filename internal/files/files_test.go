package files

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const limit = 1 << 20

// intruders may stand in a file's place.
var intruders = map[string]func(path string) error{
	"pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
	"link to a pipe": func(path string) error {
		return errors.Join(unix.Mkfifo(path+".target", 0o600), os.Symlink(path+".target", path))
	},
	"link to a file": func(path string) error {
		return errors.Join(os.WriteFile(path+".target", []byte("kept"), 0o600),
			os.Symlink(path+".target", path))
	},
	"link without end": func(path string) error { return os.Symlink("/dev/zero", path) },
	"dangling link":    func(path string) error { return os.Symlink(path+".target", path) },
	"socket": func(path string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	},
	"folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
}

// What is no regular file is refused at once, with its path.
func TestReadOfWhatIsNoFile(t *testing.T) {
	for name, intrude := range intruders {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			if err := intrude(path); err != nil {
				t.Fatal(err)
			}
			raw, err := Read(path, limit)
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
				t.Errorf("Read() = %q, %v", raw, err)
			}
			raw, err = ReadNamed(path, limit) // follows links
			if want := map[string]error{"link to a file": nil,
				"dangling link": fs.ErrNotExist}; !expected(want, name, err) {
				t.Errorf("ReadNamed() = %q, %v", raw, err)
			}
		})
	}
}

// No more than the limit is read, whatever the size says; some files in /proc say 0.
func TestReadLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, size := range []int64{0, 1, limit, limit + 1, 1 << 40} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		raw, err := Read(path, limit)
		if size <= limit && (err != nil || int64(len(raw)) != size) {
			t.Errorf("%d bytes: %d, %v", size, len(raw), err)
		}
		if size > limit && (err == nil || err.Error() != path+" is larger than 1 MiB") {
			t.Errorf("%d bytes: %d, %v", size, len(raw), err)
		}
	}
	for max, want := range map[int64]bool{10: false, limit: true} {
		raw, err := Read("/proc/self/status", max)
		if (err == nil) != want || want && len(raw) == 0 {
			t.Errorf("/proc/self/status at most %d: %d bytes, %v", max, len(raw), err)
		}
	}
}

// expected reports whether err is the one of that name, or ErrNotRegular if there is none.
func expected(want map[string]error, name string, err error) bool {
	is, ok := want[name]
	if !ok {
		is = ErrNotRegular
	}
	return errors.Is(err, is)
}

// Whatever has the temporary file's name, or the file's own, is replaced: no call blocks, nothing
// behind a link is touched, and a folder is kept.
func TestReplaceOfWhatIsNoFile(t *testing.T) {
	for name, intrude := range intruders {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state")
			if err := intrude(Temporary(path)); err != nil {
				t.Fatal(err)
			}
			if name != "folder" { // a folder cannot be replaced
				if err := intrude(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := ReplaceDurably(path, []byte("new")); err != nil {
				t.Fatal(err)
			}
			if raw, err := Read(path, limit); string(raw) != "new" || err != nil {
				t.Errorf("the file has %q, %v", raw, err)
			}
			for _, target := range []string{path + ".target", Temporary(path) + ".target"} {
				info, err := os.Lstat(target)
				if err == nil && info.Mode().IsRegular() && info.Size() != int64(len("kept")) ||
					err == nil && name == "dangling link" {
					t.Errorf("%s was touched: %v", target, info)
				}
			}
			if _, err := os.Lstat(Temporary(path)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the temporary file is left: %v", err)
			}
			kept, err := filepath.Glob(filepath.Join(dir, ".state.tmp.corrupt-*", "x"))
			if err != nil || (len(kept) == 1) != (name == "folder") {
				t.Errorf("kept %v, %v", kept, err)
			}
		})
	}
}

// Nothing that is no file is overwritten: it is moved aside, and an empty folder goes.
func TestMakeWay(t *testing.T) {
	intruders := maps.Clone(intruders)
	intruders["empty folder"] = func(path string) error { return os.Mkdir(path, 0o700) }
	for name, intrude := range intruders {
		for what, put := range map[string]func(string, []byte) error{
			"MakeWay": func(path string, content []byte) error {
				return errors.Join(MakeWay(path), ReplaceDurably(path, content))
			}, "Renew": Renew,
		} {
			path := filepath.Join(t.TempDir(), "state")
			must(t, intrude(path))
			must(t, put(path, []byte("new")))
			aside, err := filepath.Glob(path + ".corrupt-*")
			if err != nil || (len(aside) == 1) != (name != "empty folder") {
				t.Errorf("%s beside a %s: %v, %v is aside", what, name, aside, err)
			}
			must(t, MakeWay(path))
			if raw, err := Read(path, limit); string(raw) != "new" || err != nil {
				t.Errorf("%s beside a %s: the file has %q, %v", what, name, raw, err)
			}
		}
	}
}

// The leftover of an interrupted write is neither read nor kept.
func TestLeftoverOfACrashIsUsedUp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := Replace(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	half := []byte(strings.Repeat("half", 1000))
	if err := os.WriteFile(Temporary(path), half, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceDurably(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if string(got) != "new" || err != nil {
		t.Errorf("the file has %q, %v; want new", got, err)
	}
	entries, err := os.ReadDir(dir)
	if len(entries) != 1 || err != nil {
		t.Errorf("the directory has %v, %v; want one file", entries, err)
	}
}

// Nothing is ever deleted: of two files moved aside in the same millisecond none is lost.
func TestMovedAsideTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for i, want := range []bool{true, false} {
		if err := os.WriteFile(path, []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := MoveAside(path, time.Unix(0, 0)); (err == nil) != want {
			t.Errorf("round %d: %v", i, err)
		}
	}
}
