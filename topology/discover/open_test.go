package discover

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/numalet/numalet/topology"
)

func TestOpenArchive(t *testing.T) {
	spec := fixtureSpec(t, "laptop")
	for _, top := range []string{"", "./", "machine/"} {
		t.Run("below "+top, func(t *testing.T) {
			path := writeFileFor(t, "m.tar.gz", packed(t, top, rendered(spec)))
			m := openClean(t, path)
			if diff := diffSpecs(asSysfsShows(spec), m.Spec()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOpenDirectoryAndFiles(t *testing.T) {
	spec := fixtureSpec(t, "sparse-offline")
	m := openClean(t, writeTree(t, rendered(spec)))
	if diff := diffSpecs(asSysfsShows(spec), m.Spec()); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	data, err := machines.ReadFile("machines/sparse-offline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{writeFileFor(t, "m.yaml", data), "fixture:sparse-offline"} {
		if diff := diffSpecs(spec, openClean(t, path).Spec()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// Open reads what Snapshot writes, and ghw accepts it as a snapshot.
func TestSnapshotOfThisHost(t *testing.T) {
	host, err := Host("/")
	if err != nil {
		t.Skip("no machine in sysfs here: ", err)
	}
	var b bytes.Buffer
	if err := Snapshot(t.Context(), &b, "/"); err != nil {
		t.Fatal(err)
	}
	m := openClean(t, writeFileFor(t, "host.tgz", b.Bytes()))
	if diff := diffSpecs(host.Spec(), m.Spec()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSnapshotOfTree(t *testing.T) {
	spec := fixtureSpec(t, "cpuless-memory")
	var b bytes.Buffer
	if err := Snapshot(t.Context(), &b, writeTree(t, rendered(spec))); err != nil {
		t.Fatal(err)
	}
	m := openClean(t, writeFileFor(t, "m.tgz", b.Bytes()))
	if diff := diffSpecs(asSysfsShows(spec), m.Spec()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := Snapshot(t.Context(), io.Discard, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of an empty directory: %v", err)
	}
}

func TestSnapshotReportsFailedWrites(t *testing.T) {
	root := writeTree(t, rendered(fixtureSpec(t, "laptop")))
	full := errors.New("disk full")
	var whole bytes.Buffer
	if err := Snapshot(t.Context(), &whole, root); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{0, 5, whole.Len() / 2, whole.Len() - 1} {
		err := Snapshot(context.Background(), &bounded{room, full}, root)
		if !errors.Is(err, full) {
			t.Errorf("with room for %d of %d bytes: %v", room, whole.Len(), err)
		}
	}
}

// bounded takes room bytes and then fails.
type bounded struct {
	room int
	err  error
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, b.err
	}
	return len(p), nil
}

func TestOpenRefuses(t *testing.T) {
	good := packed(t, "", rendered(fixtureSpec(t, "laptop")))
	link := func(target string) fstest.MapFS {
		return fstest.MapFS{"sys/a": {Data: []byte(target), Mode: fs.ModeSymlink}}
	}
	escape := fstest.MapFS{
		"sys/devices/system/cpu/cpu0": {Data: []byte("../../../../../x"), Mode: fs.ModeSymlink},
	}
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"cut short", good[:len(good)/2], "damaged or cut short"},
		{"last bytes missing", good[:len(good)-4], "damaged or cut short"},
		{"only the magic", good[:2], "damaged or cut short"},
		{"gzip of something else", gzipped(t, []byte(strings.Repeat("hello", 500))),
			"damaged or cut short"},
		{"empty archive", gzipped(t, make([]byte, 1024)), "needs at least " + cpuDir},
		{"no machine", packed(t, "", fstest.MapFS{"etc/motd": {Data: []byte("hi")}}),
			"needs at least " + cpuDir},
		{"entry above", archive(t, tar.Header{Name: "../../evil", Typeflag: tar.TypeReg}),
			`"../../evil" leads out`},
		{"entry above, hidden",
			archive(t, tar.Header{Name: "sys/../../evil", Typeflag: tar.TypeReg}), "leads out"},
		{"absolute entry", archive(t, tar.Header{Name: "/etc/evil", Typeflag: tar.TypeReg}),
			"leads out"},
		{"link above", packed(t, "", link("../../etc")), `its link to "../../etc" leads out`},
		{"link far above", packed(t, "", escape), "leads out"},
		{"write through link", archive(t,
			tar.Header{Name: "a", Linkname: "/tmp", Typeflag: tar.TypeSymlink},
			tar.Header{Name: "b", Linkname: "c", Typeflag: tar.TypeSymlink},
			tar.Header{Name: "b/d", Typeflag: tar.TypeReg}), "file exists"},
		{"huge entry", archive(t, tar.Header{Name: "sys/big", Size: maxUnpacked + 1,
			Typeflag: tar.TypeReg}), "MiB unpacked"},
		{"plain tar", make([]byte, 1024), "neither a ghw snapshot"},
		{"bad YAML", []byte("nodes: [{cpus: x}]"), "nodes[0].cpus"},
		{"empty file", nil, "nodes: empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFileFor(t, "machine", tt.data)
			_, err := openWatched(t, path)
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("error %v\nwant  %s and the path", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "numalet-snapshot-") {
				t.Errorf("error %v names the temporary directory", err)
			}
		})
	}
	if _, err := Open("fixture:none"); err == nil || !strings.Contains(err.Error(), "epyc-nps4") {
		t.Errorf("unknown fixture: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); err == nil ||
		!strings.Contains(err.Error(), "fixture:NAME") {
		t.Errorf("missing file: %v", err)
	}
}

func openClean(t *testing.T, path string) *topology.Machine {
	t.Helper()
	m, err := openWatched(t, path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openWatched opens path and checks that nothing is left in the temporary directory.
func openWatched(t *testing.T, path string) (*topology.Machine, error) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	m, err := Open(path)
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return m, err
}

func writeFileFor(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// packed returns files as a snapshot, below a directory.
func packed(t *testing.T, top string, files fstest.MapFS) []byte {
	t.Helper()
	return archiveOf(t, func(w *tar.Writer) {
		for _, path := range slices.Sorted(maps.Keys(files)) {
			f := files[path]
			h := tar.Header{Name: top + path, Mode: 0o444, Size: int64(len(f.Data)),
				Typeflag: tar.TypeReg}
			switch {
			case f.Mode.IsDir():
				h.Typeflag, h.Size = tar.TypeDir, 0
			case f.Mode&fs.ModeSymlink != 0:
				h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, string(f.Data)
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				if _, err := w.Write(f.Data); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// archive returns headers without content.
func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	return archiveOf(t, func(w *tar.Writer) {
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func archiveOf(t *testing.T, fill func(w *tar.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	fill(w)
	_ = w.Close() // an entry may be announced and missing on purpose
	return gzipped(t, b.Bytes())
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
