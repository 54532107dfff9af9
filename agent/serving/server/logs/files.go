package logs

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// maxFiles bounds the files of one log: a hundred times as many as usual rotations leave.
const maxFiles = 1000

// segment is one file of a log. Its directory is below LogsDirOf, no component of its path is a
// link, and the file has no other names: a pod that may write in the log directory must not expose
// the files of others.
type segment struct {
	path string
	info fs.FileInfo // from the time it was found
}

func (s segment) compressed() bool { return strings.HasSuffix(s.path, ".gz") }

// segments returns the present files of the log at path, the oldest first.
func segments(path string) ([]segment, error) {
	dir, err := files.OpenFolder(cri.LogsDirOf(path), filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Names(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	base := filepath.Base(path)
	names = slices.DeleteFunc(names, func(name string) bool { return !logfiles.Rotated(base, name) })
	slices.Sort(names) // the names contain the time
	// one is being compressed into the other
	names = slices.CompactFunc(names, func(a, b string) bool {
		return strings.TrimSuffix(a, ".gz") == strings.TrimSuffix(b, ".gz")
	})
	var out []segment
	for _, name := range append(names, base) {
		info, err := os.Lstat(dir.Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was rotated or removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, segment{filepath.Join(filepath.Dir(path), name), info})
	}
	return out, nil
}

// open returns a segment's text and the file that it is read from. A damaged compressed text ends
// where it cannot be decompressed.
func (s segment) open() (io.Reader, *os.File, error) {
	dir, err := files.OpenFolder(cri.LogsDirOf(s.path), filepath.Dir(s.path))
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	f, err := dir.Open(filepath.Base(s.path))
	if err != nil || !s.compressed() {
		return f, f, err
	}
	text, err := gzip.NewReader(f)
	if err != nil {
		return damaged{s.path, failing{err}}, f, nil
	}
	return damaged{s.path, text}, f, nil
}

// damaged is a text that ends at the first error.
type damaged struct {
	path string
	text io.Reader
}

func (d damaged) Read(p []byte) (int, error) {
	n, err := d.text.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		klog.Background().Info("A part of a rotated log cannot be read", "file", d.path, "err", err)
		err = io.EOF
	}
	return n, err
}

// from returns the segments from file on, which may have been renamed. If file is no longer among
// them, it was compressed or removed: known is then false, and from returns only the newest
// segment.
func from(all []segment, file fs.FileInfo) (rest []segment, known bool) {
	for i, s := range all {
		if os.SameFile(s.info, file) {
			return all[i:], true
		}
	}
	return all[max(0, len(all)-1):], false
}

// failing is a text that cannot be read at all.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
