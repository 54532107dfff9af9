package logs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/files"
)

// Place is where a node has the logs of its pods.
type Place struct {
	// Dir has a directory for each pod. Links, which may be "", has a link to each container's log
	// for those who collect logs.
	Dir, Links string
}

// Link is where the link to a container's log is; "": there are none.
func (p Place) Link(pod cri.Pod, container, id string) string {
	if p.Links == "" {
		return ""
	}
	return filepath.Join(p.Links, cri.LegacyLogName(pod.Reference(), container, id))
}

// Remove removes the log of a container that the runtime has no more, with what it was rotated to,
// and the link to it.
func (p Place) Remove(pod cri.Pod, c cri.Container) error {
	var errs []error
	if link := p.Link(pod, c.Name, c.ID); link != "" {
		errs = append(errs, files.Remove(link))
	}
	dir, err := p.open(pod.Reference(), c.Name)
	errs = append(errs, err)
	if dir != nil {
		defer dir.Close()
		names, err := dir.Names(-1)
		errs = append(errs, err)
		base := filepath.Base(cri.ContainerLogPath(c.Name, c.Attempt))
		for _, name := range names {
			if name == base || Rotated(base, strings.TrimSuffix(name, unfinished)) {
				errs = append(errs, remove(dir, name))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove log of container %s: %w", c.Name, err)
	}
	return nil
}

// podOf is the pod that a directory of that name belongs to.
func podOf(name string) (types.UID, bool) {
	parts := strings.Split(name, "_") // none of the three may have one
	if len(parts) != 3 || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}
