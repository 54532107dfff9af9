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

	"github.com/numalet/numalet/agent/logs"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/files"
)

// maxFiles bounds how many files one log may have: a hundred times what anybody rotates to.
const maxFiles = 1000

// segment is one file of a log. Its directory is below LogsDirOf, and neither it nor what is on the way
// there is a link, nor has the file other names: a pod that may write among logs is not to have others'
// files shown.
type segment struct {
	path string
	info fs.FileInfo // of when it was found
}

func (s segment) compressed() bool { return strings.HasSuffix(s.path, ".gz") }

// segments are the files of the log at path that there are now, the oldest first.
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
	names = slices.DeleteFunc(names, func(name string) bool { return !logs.Rotated(base, name) })
	slices.Sort(names)                                         // by the time in the name
	names = slices.CompactFunc(names, func(a, b string) bool { // one is being made of the other
		return strings.TrimSuffix(a, ".gz") == strings.TrimSuffix(b, ".gz")
	})
	var out []segment
	for _, name := range append(names, base) {
		info, err := os.Lstat(dir.Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was rotated, or removed, meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, segment{filepath.Join(filepath.Dir(path), name), info})
	}
	return out, nil
}

// open opens a segment for reading; what it reads is the text. The file is what is read of. Of
// compressed text that is damaged there is what can be read.
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

// damaged is text that ends where it cannot be read on.
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

// from are the segments from the file on, which may have been renamed since it was found. If it is
// among them no more, it was compressed or removed: then known is false, and there is the newest
// one alone.
func from(all []segment, file fs.FileInfo) (rest []segment, known bool) {
	for i, s := range all {
		if os.SameFile(s.info, file) {
			return all[i:], true
		}
	}
	return all[max(0, len(all)-1):], false
}

// failing is text of which nothing can be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
