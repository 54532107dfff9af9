package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
)

// TouchPeriod is how often Touch is to be called.
const TouchPeriod = 10 * time.Second

// mostGone bounds the absent resources that are remembered by name alone.
const mostGone = 1000

// Book is the file. Only its one owner calls its methods; a nil Book remembers nothing.
type Book struct {
	path string
	// left are the resources that an earlier run left, until this one has written its own.
	left []entry
	// written holds what this run wrote last; nil: nothing yet.
	written *files.Record[[]Resource]
	wrong   complaint.Complaint[string] // with the last write
}

// Open reads the book's file. An unusable file is moved aside: there is an empty book then beside an
// error that is files.ErrUnusable. Any other error comes without a book.
func Open(path string) (*Book, error) {
	b := &Book{path: path, written: files.NewRecordOf[[]Resource](path, maxFile, nil, encode)}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		b.left, err = files.Load(path, maxFile, time.Now(), parse)
	}
	switch {
	case errors.Is(err, files.ErrUnusable):
		return b, fmt.Errorf("the file of what device plugins listed cannot be used: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read what device plugins listed: %w", err)
	}
	b.wereThere(info.ModTime(), time.Now())
	return b, nil
}

// wereThere has plugins that were there go with the run that wrote the book. No clock says that
// this is yet to be.
func (b *Book) wereThere(seen, now time.Time) {
	for i := range b.left {
		r := &b.left[i]
		if r.Gone.IsZero() {
			r.Gone = seen
		}
		if r.Gone.After(now) {
			r.Gone = now
		}
	}
}

// Left returns the resources that an earlier run left, each with the time when its plugin was last
// there; of the devices' nodes it keeps those that the machine has. After the first Keep there are
// none.
func (b *Book) Left(machine topology.NodeSet) (out []Resource) {
	if b == nil {
		return nil
	}
	for _, e := range b.left {
		out = append(out, e.resource(machine))
	}
	return out
}

// Keep writes the resources if they changed, except those that are held back, which stay as they were
// written last. It logs a new error and reports whether the file has them; if not, the next call tries
// again.
func (b *Book) Keep(ctx context.Context, now []Resource, held map[string]bool) (kept bool) {
	if b == nil {
		return false
	}
	now = bounded(now)
	written := b.written.Get()
	for i, r := range now {
		if !held[r.Name] {
			continue
		}
		at := slices.IndexFunc(written, func(was Resource) bool { return was.Name == r.Name })
		if at >= 0 {
			now[i] = written[at]
		}
	}
	if written != nil && slices.EqualFunc(written, now, Resource.says) {
		return true
	}
	err := b.written.Set(now)
	if err == nil {
		b.left = nil
	}
	b.report(ctx, err)
	return err == nil
}

// Touch is Keep, and remembers that the present plugins are there until now. That need not survive a
// power cut.
func (b *Book) Touch(ctx context.Context, now []Resource) {
	if !b.Keep(ctx, now, nil) {
		return
	}
	at := time.Now()
	err := os.Chtimes(b.path, at, at)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	b.report(ctx, err)
}

// bounded returns resources sorted by name, never nil. Of those that are gone and have no devices it
// keeps the last ones to go.
func bounded(all []Resource) []Resource {
	out, bare := append([]Resource{}, all...), 0
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(b.Gone.Compare(a.Gone), strings.Compare(a.Name, b.Name))
	})
	out = slices.DeleteFunc(out, func(r Resource) bool {
		if r.Gone.IsZero() || len(r.Devices) > 0 {
			return false
		}
		bare++
		return bare > mostGone
	})
	slices.SortFunc(out, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// report logs a new error once.
func (b *Book) report(ctx context.Context, err error) {
	if b.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Error(err, "Devices are not remembered over a restart; tried again",
			"every", TouchPeriod)
	}
}
