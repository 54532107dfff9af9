package logfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

// keptAttempts is the number of attempts at a container whose logs stay when their records are
// removed.
const keptAttempts = 5

// Next returns the attempt number after the last one that has a log.
func (p Place) Next(pod *v1.Pod, container string) uint32 {
	dir, err := p.open(pod, container)
	if dir == nil || err != nil {
		return 0
	}
	defer dir.Close()
	attempts, _, err := attempts(dir)
	if err != nil || len(attempts) == 0 {
		return 0
	}
	return attempts[len(attempts)-1] + 1
}

// Keep keeps the log of a container whose record was removed, and removes those of the oldest
// attempts if there are too many.
func (p Place) Keep(pod cri.Pod, c cri.Container) error {
	dir, err := p.open(pod.Reference(), c.Name)
	if dir == nil {
		return err
	}
	defer dir.Close()
	attempts, names, err := attempts(dir)
	errs := []error{err}
	for _, old := range attempts[:max(len(attempts)-keptAttempts, 0)] {
		prefix := strconv.FormatUint(uint64(old), 10) + ".log"
		for _, name := range names {
			if name == prefix || Rotated(prefix, strings.TrimSuffix(name, Unfinished)) {
				errs = append(errs, remove(dir, name))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old logs of container %s: %w", c.Name, err)
	}
	return nil
}

// open opens the directory of a container's logs; nil: there is none.
func (p Place) open(pod *v1.Pod, container string) (*files.Folder, error) {
	dir, err := files.OpenFolder(p.Dir, filepath.Dir(
		filepath.Join(cri.PodLogDir(p.Dir, pod), cri.ContainerLogPath(container, 0))))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return dir, err
}

func remove(dir *files.Folder, name string) error { return files.Remove(dir.Path(name)) }

// attempts returns the attempts that have a log in a container's directory, in order, and the names
// of all files.
func attempts(dir *files.Folder) (out []uint32, names []string, err error) {
	names, err = dir.Names(-1)
	slices.Sort(names)
	all := sets.New[uint32]()
	for _, name := range names {
		number, _, _ := strings.Cut(name, ".log")
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			all.Insert(uint32(n))
		}
	}
	out = all.UnsortedList()
	slices.Sort(out)
	return out, names, err
}
