package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/strictyaml"
)

// A file may hang when it is opened, looked at or read: a link may lead anywhere, and what is
// mounted there may be gone. So each is read in a goroutine of its own, which is left behind when
// it takes too long, and what it comes to is taken whenever it comes. The kernel lets nobody end
// such a call: its goroutine outlives Run.
const (
	// patience is how long others wait for files that are not read to their end.
	patience = time.Second
	// maxReading is how many files are read at once, without those that nobody waits for.
	maxReading = 16
	// maxStuck is how many files may hang: each takes a thread of the process.
	maxStuck = 500
	// largeManifest is from how many bytes on manifests are decoded one after the other: they take
	// memory.
	largeManifest = 64 << 10
)

// reading is one file being read.
type reading struct {
	name, path string
	created    bool              // it may not have its content yet
	known      [sha256.Size]byte // of the content last looked at
	stuck      bool              // nobody waits for it; of the feed's goroutine
}

// outcome is what a reading came to.
type outcome struct {
	of         *reading
	unfinished bool  // the file is being written
	err        error // it cannot be read
	sum        [sha256.Size]byte
	same       bool      // its content is the known one
	touched    time.Time // when the file was last written to
	pod        *v1.Pod
	invalid    error // the content is no good pod
	ignored    strictyaml.Messages
}

// reader reads manifests; its methods may be called from anywhere.
type reader struct {
	node   string
	strict bool
	bytes  func(path string) (content, error)
	large  chan struct{} // capacity 1
	// patience is the constant, but in tests.
	patience time.Duration
}

func newReader(c FileConfig) *reader {
	return &reader{
		node: c.Node, strict: c.Strict, bytes: readManifest, large: make(chan struct{}, 1),
		patience: patience,
	}
}

func (r *reader) read(of *reading) outcome {
	out := outcome{of: of}
	if of.created && !complete(of.path) {
		out.unfinished = true
		return out
	}
	m, err := r.bytes(of.path)
	if err != nil {
		out.err = err
		return out
	}
	out.touched = m.written
	if out.sum = sha256.Sum256(m.text); out.sum == of.known {
		out.same = true
		return out
	}
	if len(m.text) > largeManifest {
		r.large <- struct{}{}
		defer func() { <-r.large }()
	}
	d, err := decode(m.text, false, r.strict)
	if err == nil {
		err = r.origin(of.path).pod(&d.pods[0])
	}
	if err != nil {
		out.invalid = err
		return out
	}
	out.pod, out.ignored = &d.pods[0], d.ignored
	return out
}

func (r *reader) origin(path string) origin {
	return origin{node: r.node, source: FileSource, place: path}
}

// complete reports whether a new entry has its content already: links do, files are being written.
func complete(path string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink > 1)
}

var errDirectory = errors.New("is a directory; only the files beside it are looked at")

// content is what was in a file, and when it was last written to.
type content struct {
	text    []byte
	written time.Time
}

// readManifest reads a regular file of at most maxManifest bytes.
func readManifest(path string) (content, error) {
	// Not blocking: a named pipe without a writer, or a file with a lease, would hold us.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return content{}, fmt.Errorf("open manifest: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return content{}, fmt.Errorf("look at manifest: %w", err)
	case info.IsDir():
		return content{}, errDirectory
	case !info.Mode().IsRegular():
		return content{}, refuse(Unreadable,
			"is no regular file; remove it or put the manifest there")
	case info.Size() > maxManifest:
		return content{}, errTooLarge
	case info.Size() == 0:
		// Empty, or one of the kernel's files, whose content may have no end.
		return content{written: info.ModTime()}, nil
	}
	text, err := readLimited(file)
	return content{text, info.ModTime()}, err
}

var errTooLarge = refuse(Unreadable, "the manifest is larger than %d MiB", maxManifest>>20)

// readLimited reads all, and refuses more than maxManifest.
func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read manifest: %w", err)
	case len(data) > maxManifest:
		return nil, errTooLarge
	}
	return data, nil
}
