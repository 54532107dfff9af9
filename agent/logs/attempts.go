package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/files"
)

// keptAttempts is how many attempts at a container have logs that are kept without a record.
const keptAttempts = 5

// Next is the attempt that comes after all those at a container that have a log.
func (p Place) Next(pod *v1.Pod, container string) uint32 {
	attempts, _, err := p.attempts(pod, container)
	if err != nil || len(attempts) == 0 {
		return 0
	}
	return attempts[len(attempts)-1] + 1
}

// Keep takes that a container whose record was removed keeps its log: only those of the oldest
// attempts at it go, if there are too many.
func (p Place) Keep(pod cri.Pod, c cri.Container) error {
	attempts, names, err := p.attempts(pod.Reference(), c.Name)
	errs := []error{err}
	for _, old := range attempts[:max(len(attempts)-keptAttempts, 0)] {
		prefix := strconv.FormatUint(uint64(old), 10) + ".log"
		for _, name := range names {
			if name == prefix || Rotated(prefix, strings.TrimSuffix(name, unfinished)) {
				errs = append(errs, files.Remove(filepath.Join(p.dir(pod.Reference(), c.Name), name)))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old logs of container %s: %w", c.Name, err)
	}
	return nil
}

func (p Place) dir(pod *v1.Pod, container string) string {
	return filepath.Dir(filepath.Join(cri.PodLogDir(p.Dir, pod), cri.ContainerLogPath(container, 0)))
}

// attempts are those at a container that have a log, in order, and all files in its directory.
func (p Place) attempts(pod *v1.Pod, container string) (out []uint32, names []string, err error) {
	entries, err := os.ReadDir(p.dir(pod, container))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	all := sets.New[uint32]()
	for _, e := range entries {
		names = append(names, e.Name())
		number, _, _ := strings.Cut(e.Name(), ".log")
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			all.Insert(uint32(n))
		}
	}
	out = all.UnsortedList()
	slices.Sort(out)
	return out, names, err
}
