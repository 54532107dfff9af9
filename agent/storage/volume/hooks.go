package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// hookFile, beside a container's termination messages, has the attempt whose postStart hook has not
// succeeded yet. The next run of the agent learns it from there.
const hookFile = "post-start"

func (r Records) hookFile(uid types.UID, container string) (string, error) {
	if err := component("container", container); err != nil {
		return "", err
	}
	dir, err := r.layout.podDir(uid)
	return filepath.Join(dir, containersDir, container, hookFile), err
}

// HookPends records that this attempt's postStart hook must run; call it before the container
// starts.
func (r Records) HookPends(uid types.UID, container string, attempt uint32) error {
	path, err := r.hookFile(uid, container)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), dirMode)
	}
	if err == nil {
		err = errors.Join(files.MakeWay(path),
			files.Replace(path, strconv.AppendUint(nil, uint64(attempt), 10)))
	}
	if err != nil {
		return fmt.Errorf("note the postStart hook of container %s: %w", container, err)
	}
	return nil
}

// HookDone records that the container's postStart hook has succeeded.
func (r Records) HookDone(uid types.UID, container string) error {
	path, err := r.hookFile(uid, container)
	if err == nil {
		err = files.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("note that the postStart hook of container %s is done: %w",
			container, err)
	}
	return nil
}

// HooksPending returns the attempts, by container, whose postStart hooks an earlier run of the
// agent did not finish. A record that cannot be read counts as none.
func (r Records) HooksPending(pod *v1.Pod) map[string]uint32 {
	var out map[string]uint32
	for c := range podspec.Containers(pod) {
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
			continue
		}
		path, err := r.hookFile(pod.UID, c.Name)
		if err != nil {
			continue
		}
		text, err := readEnd(path, maxMessage)
		if err != nil {
			continue
		}
		if attempt, err := strconv.ParseUint(string(text), 10, 32); err == nil {
			if out == nil {
				out = map[string]uint32{}
			}
			out[c.Name] = uint32(attempt)
		}
	}
	return out
}
