package watcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// identity tells a socket from a later one of the same name.
type identity struct {
	dev, ino uint64
	modified syscall.Timespec // when it was made: a socket's inode is not written to
}

// scan lists the sockets in the directory and below, and subscribes to events of each directory. It
// skips names that begin with a dot, and what lies below them.
func (f *followed) scan() (map[string]identity, error) {
	root := f.watcher.cfg.Dir
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("make plugin registry directory: %w", err)
	}
	found := map[string]identity{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it has just been removed
		case err != nil:
			return err
		case path != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return f.watch(path)
		case entry.Type()&fs.ModeSocket == 0:
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			found[path] = identity{stat.Dev, stat.Ino, stat.Mtim}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read plugin registry directory: %w", err)
	}
	return found, nil
}

// watch subscribes to events of a directory. Without events the next scan finds what is new.
func (f *followed) watch(dir string) error {
	if f.notify == nil {
		return nil
	}
	if err := f.notify.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	return nil
}
