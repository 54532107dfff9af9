// Package logfiles says where the logs of containers are, and keeps those of the last attempts.
package logfiles

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

// Place says where a node's logs are.
type Place struct {
	// Dir holds a directory for each pod. Links holds a link to each container's log, for log
	// collectors; it may be "".
	Dir, Links string
}

// PlaceAt returns the place of a node whose pod logs are in dir. Log collectors find links to them if
// dir is the kubelet's default.
func PlaceAt(dir string) Place {
	if dir != "/var/log/pods" {
		return Place{Dir: dir}
	}
	return Place{Dir: dir, Links: "/var/log/containers"}
}

// Link returns the path of the link to a container's log; "": there are none.
func (p Place) Link(pod cri.Pod, container, id string) string {
	if p.Links == "" {
		return ""
	}
	return filepath.Join(p.Links, cri.LegacyLogName(pod.Reference(), container, id))
}

// Remove removes the log of a container that the runtime no longer has, with its rotated files and
// the link to it.
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
			if name == base || Rotated(base, strings.TrimSuffix(name, Unfinished)) {
				errs = append(errs, remove(dir, name))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove log of container %s: %w", c.Name, err)
	}
	return nil
}
