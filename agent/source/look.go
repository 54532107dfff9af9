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

	"github.com/numalet/numalet/topology/await"
)

// look is what there is at the path of manifests.
type look struct {
	isDir bool
	// absent: nothing is there.
	absent bool
	names  []string
	err    error
	// watch is on the path, or on the directory around it if it is none; nil: none was asked for,
	// or watchErr says why there is none.
	watch    *watch
	watchErr error
}

// lookAt lists the files. It watches first, if asked to, so that no change is missed.
func lookAt(path string, watching bool) (l look) {
	isDir, err := isFolder(path)
	for try := 0; watching; try++ {
		dir := path
		if !isDir {
			dir = filepath.Dir(path)
		}
		l.watch, l.watchErr = newWatch(dir)
		was := isDir
		// What has come or gone before the watch was there is not told by it.
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

// mostTries is how often a path is watched anew that is, or is not, a folder in turns.
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

// look looks at the path in a goroutine of its own, which is left behind if ctx ends: the path may
// hang. ok: it did not.
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

// Healthy is an error when the path has not answered for longer than limit.
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
