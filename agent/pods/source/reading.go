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

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/strictyaml"
)

// Opening, inspecting or reading a file may hang: a link may lead to a filesystem that does not
// answer. So each file is read in a new goroutine, which is abandoned if it takes too long; its
// result is taken whenever it comes. Such a call cannot be interrupted, so its goroutine outlives
// Run.
const (
	// patience is how long others wait for pending reads.
	patience = time.Second
	// maxReading bounds the concurrent reads, not counting abandoned ones.
	maxReading = 16
	// maxStuck bounds the files that hang: each occupies a thread of the process.
	maxStuck = 500
	// largeManifest is the size in bytes from which manifests are decoded one at a time, since that
	// takes memory.
	largeManifest = 64 << 10
)

// reading is one pending read of a file.
type reading struct {
	name, path string
	created    bool              // its content may not be complete yet
	known      [sha256.Size]byte // of the content last read
	stuck      bool              // the feed no longer waits for it; owned by the feed's goroutine
}

// outcome is the result of a reading.
type outcome struct {
	of         *reading
	unfinished bool  // the file is being written
	err        error // why it cannot be read
	sum        [sha256.Size]byte
	same       bool      // the content is the known one
	touched    time.Time // time of the file's last write
	pod        *v1.Pod
	invalid    error // why the content is not a good pod
	ignored    strictyaml.Messages
}

// reader reads manifests; its methods may be called from any goroutine.
type reader struct {
	node   string
	strict bool
	gates  manifest.Gates
	bytes  func(path string) (content, error)
	large  chan struct{} // capacity 1
	// patience is the constant, except in tests.
	patience time.Duration
}

func newReader(c FileConfig) *reader {
	return &reader{
		node: c.Node, strict: c.Strict, gates: c.Gates, bytes: readManifest, large: make(chan struct{}, 1),
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
	d, err := manifest.Decode(m.text, false, r.strict)
	if err == nil {
		err = r.origin(of.path).pod(&d.Pods[0])
	}
	if err != nil {
		out.invalid = err
		return out
	}
	out.pod, out.ignored = &d.Pods[0], d.Ignored
	return out
}

func (r *reader) origin(path string) origin {
	return origin{node: r.node, source: FileSource, place: path, gates: r.gates}
}

// complete reports whether a new entry already has its content: links have, files are being
// written.
func complete(path string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink > 1)
}

var errDirectory = errors.New("is a directory; only the files beside it are looked at")

// content is the text of a file, and the time of its last write.
type content struct {
	text    []byte
	written time.Time
}

// readManifest reads a regular file of at most maxManifest bytes.
func readManifest(path string) (content, error) {
	// Not blocking: a named pipe without a writer, or a file with a lease, would block.
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
		return content{}, manifest.Refuse(manifest.Unreadable,
			"is no regular file; remove it or put the manifest there")
	case info.Size() > manifest.MaxBytes:
		return content{}, errTooLarge
	case info.Size() == 0:
		// Empty, or a file of the kernel, whose content may have no end.
		return content{written: info.ModTime()}, nil
	}
	text, err := readLimited(file)
	return content{text, info.ModTime()}, err
}

var errTooLarge = manifest.Refuse(manifest.Unreadable, "the manifest is larger than %d MiB", manifest.MaxBytes>>20)

// readLimited reads everything, and refuses more than maxManifest bytes.
func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read manifest: %w", err)
	case len(data) > manifest.MaxBytes:
		return nil, errTooLarge
	}
	return data, nil
}
