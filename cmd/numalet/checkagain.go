package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/numalet/numalet/internal/await"
)

// settles is how long files must be left alone: a linker writes an executable in many steps.
const settles = 300 * time.Millisecond

// again runs a check, and again whenever one of the paths changes, until ctx is done. Without paths it
// runs once. It returns what the last run did; what could not be checked is written to out, since the
// next change may mend it.
func again(ctx context.Context, paths []string, out io.Writer, run func() (bool, error)) (
	good bool, err error) {
	if len(paths) == 0 {
		return run()
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return false, fmt.Errorf("--watch: %w", err)
	}
	defer watcher.Close()
	watched, err := watch(watcher, paths)
	if err != nil {
		return false, err
	}
	for {
		good, err = run()
		if ctx.Err() != nil {
			return good, nil //nolint:nilerr // the interrupted run's error is that of the interrupt
		}
		if err != nil {
			_, _ = fmt.Fprintln(out, "numalet:", err)
		}
		if !changed(ctx, watcher, watched, out) {
			return good, err
		}
	}
}

// watch watches files by their folders, since compilers replace them. It returns the cleaned paths.
func watch(watcher *fsnotify.Watcher, paths []string) (watched []string, err error) {
	for _, path := range paths {
		path = filepath.Clean(path)
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("--watch: %w", err)
		}
		dir := path
		if !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if err := watcher.Add(dir); err != nil {
			return nil, fmt.Errorf("--watch %s: %w", path, err)
		}
		watched = append(watched, path)
	}
	return watched, nil
}

// changed waits until one of the paths has changed and rests; false: ctx is done.
func changed(ctx context.Context, watcher *fsnotify.Watcher, watched []string, out io.Writer) bool {
	var rests <-chan time.Time // nil: nothing has changed
	for {
		select {
		case e := <-watcher.Events:
			path := filepath.Clean(e.Name)
			if !e.Has(fsnotify.Chmod) && (slices.Contains(watched, path) ||
				slices.Contains(watched, filepath.Dir(path))) {
				rests = await.At(time.Now().Add(settles))
			}
		case err := <-watcher.Errors: // events may be lost
			_, _ = fmt.Fprintln(out, "numalet: --watch:", err)
			rests = await.At(time.Now().Add(settles))
		case <-rests:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
