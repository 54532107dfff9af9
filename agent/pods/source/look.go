package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// look describes the path of manifests.
type look struct {
	isDir bool
	// absent is set if nothing exists there.
	absent bool
	names  []string
	err    error
	// watch watches the path or, if it is not a directory, its parent. It is nil if not asked for, or
	// if watchErr says why it failed.
	watch    *watch
	watchErr error
}

// lookAt lists the files. If asked to, it starts the watch first, so that no change is missed.
func lookAt(path string, watching bool) (l look) {
	isDir, err := isFolder(path)
	for try := 0; watching; try++ {
		dir := path
		if !isDir {
			dir = filepath.Dir(path)
		}
		l.watch, l.watchErr = newWatch(dir)
		was := isDir
		// The watch does not report what appeared or disappeared before it started.
		if isDir, err = isFolder(path); isDir == was || try == mostTries {
			break
		}
		l.close()
	}
	l.isDir = isDir
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.absent = true
		return l
	case err != nil:
		l.err = fmt.Errorf("look at manifests: %w", err)
		return l
	case !l.isDir:
		l.names = []string{filepath.Base(path)}
		return l
	}
	dir, err := os.ReadDir(path)
	if err != nil {
		l.err = fmt.Errorf("list manifests: %w", err)
	}
	for _, entry := range dir {
		if !strings.HasPrefix(entry.Name(), ".") {
			l.names = append(l.names, entry.Name())
		}
	}
	return l
}

// mostTries bounds the tries to watch a path that keeps changing between directory and file.
const mostTries = 3

func isFolder(path string) (bool, error) {
	info, err := os.Stat(path)
	return err == nil && info.IsDir(), err
}

func (l look) close() {
	if l.watch != nil {
		_ = l.watch.file.Close()
	}
}

// look looks at the path in a new goroutine, which it abandons if ctx ends, since the path may
// hang; ok is then false.
func (f *File) look(ctx context.Context, watching bool) (l look, ok bool) {
	looked := make(chan look)
	f.lookingSince.Store(time.Now().UnixNano())
	defer f.lookingSince.Store(0)
	go func() {
		l := f.lookAt(f.c.Path, watching)
		if !await.Send(ctx, looked, l) {
			l.close()
		}
	}()
	slow := time.NewTimer(f.reader.patience)
	defer slow.Stop()
	for {
		select {
		case l = <-looked:
			f.isDir, f.wrong.listing, f.wrong.missing = l.isDir, "", ""
			if l.absent {
				f.wrong.missing = "is not there, so no pods come from it: make the folder, or correct " +
					"staticPodPath in the configuration"
			}
			if l.err != nil {
				f.wrong.listing = l.err.Error()
			}
			return l, true
		case <-slow.C:
			f.wrong.listing = "the path does not answer; its manifests stay as they were"
			f.ledger.now(f.findings())
		case <-ctx.Done():
			return look{}, false
		}
	}
}

// Healthy returns an error if the path has not answered for longer than limit.
func (f *File) Healthy(now time.Time, limit time.Duration) error {
	since := f.lookingSince.Load()
	if since == 0 {
		return nil
	}
	if ago := now.Sub(time.Unix(0, since)); ago > limit {
		return fmt.Errorf("%s has not answered for %v", f.c.Path, ago.Round(time.Second))
	}
	return nil
}
