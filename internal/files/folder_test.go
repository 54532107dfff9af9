package files

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// world makes a root with a/b/file in it, and somebody else's folder.
func world(t *testing.T) (root, other string) {
	t.Helper()
	root, other = t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(root, "a/b/file"), filepath.Join(other, "secret")} {
		if err := os.WriteFile(path, []byte("it is "+path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, other
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// No part below the root may be a link, and a path may not leave it; the root itself may be a link.
func TestFolder(t *testing.T) {
	root, other := world(t)
	link := filepath.Join(t.TempDir(), "root")
	must(t, os.Symlink(root, link))
	must(t, os.Symlink("b", filepath.Join(root, "a/beside")))
	must(t, os.Symlink(other, filepath.Join(root, "outside")))
	must(t, os.Mkdir(filepath.Join(other, "below"), 0o755))
	for path, why := range map[string]string{
		"a/b": "", "a": "", ".": "", "a/../a/b": "",
		"a/beside": "remove it", "outside": "remove it", "outside/below": "remove it",
		"a/b/file": "remove it", "a/none": "no such file", "..": "is not below", "../x": "is not below",
	} {
		d, err := OpenFolder(link, filepath.Join(link, path))
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: %v, want %q", path, err, why)
		}
		if err == nil {
			must(t, d.Close())
		}
	}
}

// An open folder stays the same, whatever is replaced on its path, and only opens regular files
// without other names.
func TestFolderStays(t *testing.T) {
	root, other := world(t)
	d, err := OpenFolder(root, filepath.Join(root, "a/b"))
	must(t, err)
	defer d.Close()
	must(t, os.Rename(filepath.Join(root, "a"), filepath.Join(root, "moved")))
	must(t, os.Symlink(other, filepath.Join(root, "a")))
	f, err := d.Open("file")
	must(t, err)
	text, err := io.ReadAll(f)
	if err != nil || !strings.HasSuffix(string(text), "a/b/file") {
		t.Errorf("%q, %v", text, err)
	}
	must(t, f.Close())
	must(t, os.Link(filepath.Join(other, "secret"), d.Path("hard")))
	must(t, os.Symlink(filepath.Join(other, "secret"), d.Path("soft")))
	must(t, os.Mkdir(d.Path("folder"), 0o755))
	for _, name := range []string{"hard", "soft", "folder", "none"} {
		if f, err := d.Open(name); err == nil {
			t.Errorf("%s was opened: %v", name, f.Close())
		}
	}
	names, err := d.Names(-1)
	slices.Sort(names)
	if want := []string{"file", "folder", "hard", "soft"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v", names, err)
	}
}

// Nothing but a directory, or a link to one, stays in a folder's place. What stands in the place of a
// folder above is left alone.
func TestMakeFolder(t *testing.T) {
	intruders := maps.Clone(intruders)
	delete(intruders, "folder")
	intruders["file"] = func(path string) error { return os.WriteFile(path, []byte("kept"), 0o600) }
	for name, intrude := range intruders {
		dir := t.TempDir()
		path := filepath.Join(dir, "state")
		must(t, intrude(path))
		below := MakeFolder(filepath.Join(path, "below"), 0o700, time.Now())
		if entries, err := os.ReadDir(dir); below == nil || errors.Is(below, ErrUnusable) ||
			err != nil || strings.Contains(fmt.Sprint(entries), "corrupt") {
			t.Errorf("below a %s: %v; %v, %v", name, below, entries, err)
		}
		var unusable *Unusable
		if err := MakeFolder(path, 0o700, time.Now()); !errors.As(err, &unusable) {
			t.Errorf("in place of a %s: %v", name, err)
			continue
		}
		if _, err := os.Lstat(unusable.Aside); err != nil {
			t.Errorf("the %s is gone: %v", name, err)
		}
		if err := MakeFolder(path, 0o700, time.Now()); err != nil {
			t.Errorf("after the %s was moved aside: %v", name, err)
		}
	}
	root, other := world(t)
	must(t, os.Symlink(other, filepath.Join(root, "link")))
	for _, name := range []string{"a", "a/b", "a/c/d", "link", "link/below"} {
		path := filepath.Join(root, name)
		if err := MakeFolder(path, 0o700, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
