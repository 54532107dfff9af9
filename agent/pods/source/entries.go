package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

// fileEntry holds what is known about one file.
type fileEntry struct {
	sum [sha256.Size]byte // of the content last read
	// touched is the time of the file's last write.
	touched time.Time
	pod     *v1.Pod // from the last good content, nil if there was none
	// reading is the file's pending read, nil if there is none.
	reading *reading
	// Problems with the file, with its content, with its pod beside the others, and ignored fields of
	// the content. Without a message there is no problem.
	unreadable, invalid, clash, ignored complaint.Problem
}

// read reads files and reports whether the set of pods changed. It waits for all reads except those
// that hang, whose results are taken later.
func (f *File) read(ctx context.Context, queue []reading) (changed bool) {
	fresh := map[*reading]bool{}
	slow := time.NewTimer(f.reader.patience)
	defer slow.Stop()
	for {
		for len(queue) > 0 && len(fresh) < maxReading {
			if r := f.begin(ctx, queue[0]); r != nil {
				fresh[r] = true
			}
			queue = queue[1:]
		}
		if len(fresh) == 0 {
			return changed
		}
		select {
		case o := <-f.done:
			delete(fresh, o.of)
			changed = f.take(o) || changed
		case <-slow.C:
			for r := range fresh {
				r.stuck = true
			}
			f.stuck += len(fresh)
			clear(fresh)
		case <-ctx.Done():
			return changed
		}
		slow.Reset(f.reader.patience)
	}
}

// begin reads a file in a new goroutine; nil: too many files hang already.
func (f *File) begin(ctx context.Context, r reading) *reading {
	r.path = f.path(r.name)
	e := f.entries[r.name]
	if e == nil {
		e = &fileEntry{}
		f.entries[r.name] = e
	}
	if f.stuck >= maxStuck {
		e.unreadable = f.reader.origin(r.path).problem(r.path, manifest.Refuse(manifest.Unreadable, "is not read: "+
			"%d other files hang; see what is wrong with them", f.stuck))
		return nil
	}
	r.known, e.reading = e.sum, &r
	go func() {
		o := f.reader.read(&r)
		await.Send(ctx, f.done, o)
	}()
	return &r
}

// take takes the result of a read and reports whether the set of pods changed.
func (f *File) take(o outcome) (changed bool) {
	name, path := o.of.name, o.of.path
	if o.of.stuck {
		f.stuck--
	}
	e := f.entries[name]
	if e == nil || e.reading != o.of {
		return false // another read of the file has begun
	}
	e.reading = nil
	at := f.reader.origin(path)
	switch {
	case o.unfinished:
		if e.sum == (fileEntry{}).sum && e.unreadable.Message == "" {
			delete(f.entries, name)
		}
		return false
	case errors.Is(o.err, fs.ErrNotExist), errors.Is(o.err, errDirectory):
		delete(f.entries, name)
		if errors.Is(o.err, errDirectory) && path != f.c.Path {
			f.entries[name] = &fileEntry{unreadable: at.problem(path, o.err)}
		}
		return e.pod != nil
	case o.err != nil:
		e.unreadable = at.problem(path, o.err)
		return false
	}
	e.unreadable = complaint.Problem{}
	again := !e.touched.Equal(o.touched)
	e.touched = o.touched
	if o.same {
		if again && e.pod != nil {
			e.pod = new(*e.pod) // a copy, which counts as written again
		}
		return again && e.pod != nil
	}
	e.sum, e.invalid = o.sum, complaint.Problem{}
	if o.invalid != nil {
		e.invalid = at.problem(path, o.invalid)
		return false
	}
	e.ignored, e.pod = at.warning(path, o.ignored), o.pod
	return true
}

// hangs returns the problem of a file whose read is pending; without a message if none is.
func (f *File) hangs(e *fileEntry) complaint.Problem {
	if e.reading == nil {
		return complaint.Problem{}
	}
	return f.reader.origin(e.reading.path).problem(e.reading.path, manifest.Refuse(manifest.Unreadable,
		"is not read to its end: what it is on does not answer, or it takes long to decode; its "+
			"pod stays as it was, and other files are followed"))
}

// pods returns the set to deliver, ordered by file name. If two files have the same pod, or pods of
// the same UID, the first counts.
func (f *File) pods() []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(f.entries))
	owner, uids := map[types.NamespacedName]string{}, map[types.UID]string{}
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[name]
		if e.pod == nil {
			continue
		}
		key := types.NamespacedName{Namespace: e.pod.Namespace, Name: e.pod.Name}
		e.clash = complaint.Problem{}
		if first, twice := owner[key]; twice {
			e.clash = origin{source: FileSource}.problem(f.path(name), manifest.Refuse(manifest.FailedValidation,
				"pod %s is in %s already; rename one of the two", key, f.path(first)))
			continue
		}
		if first, twice := uids[e.pod.UID]; twice {
			e.clash = origin{source: FileSource}.problem(f.path(name), manifest.Refuse(manifest.FailedValidation,
				"the pod in %s has the same UID %s; change metadata.uid in one of the two",
				f.path(first), e.pod.UID))
			continue
		}
		owner[key], uids[e.pod.UID] = name, name
		pods = append(pods, e.pod)
	}
	return pods
}
