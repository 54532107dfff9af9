package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// locals are directories of the host that persistent volumes name. A pod's is a mount of its own, so
// that what it does to it is undone with it.
func locals() plugin {
	return plugin{field: "local", name: "kubernetes.io/local-volume", relabel: true, options: true,
		persistent: true, mounted: always,
		setUp: func(ctx context.Context, v *Volumes, t target) (time.Time, error) {
			return time.Time{}, v.foreign(ctx, t, func() error {
				shared := v.claims.elsewhere(t.pod.UID, t.pv.Name)
				if shared {
					v.tellShared(t)
				}
				if err := v.mountLocal(t); err != nil {
					return err
				}
				// Who came first has given it away.
				if !shared && !t.readOnly && v.asRoot {
					if err := giveTo(t.path(), t.pod.Spec.SecurityContext); err != nil {
						return err
					}
				}
				return t.markReady()
			})
		}}
}

func always(used) bool { return true }

func (f filesystems) mountLocal(t target) error {
	source := t.pv.Spec.Local.Path
	if slices.Contains(strings.Split(source, "/"), "..") {
		return fmt.Errorf("invalid path: %s must not contain '..'", source)
	}
	info, err := os.Stat(source)
	switch {
	case source == "":
		return errors.New("the local volume has no path")
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("local path %s is no directory; a block device is not supported yet, "+
			"and the pod waits for it", source)
	}
	if t.have.mounted {
		return nil
	}
	if err := os.MkdirAll(t.path(), dirMode); err != nil {
		return err
	}
	options := []string{"bind"}
	if t.readOnly {
		options = append(options, "ro")
	}
	return f.mount(source, t.path(), "", t.mountOptions(options...))
}

// tellShared tells of a volume that other pods use with another group than this pod asks for.
func (v *Volumes) tellShared(t target) {
	group := groupOf(t.pod)
	if group == nil || v.cfg.Tell == nil {
		return
	}
	if gid, err := groupAt(t.pv.Spec.Local.Path); err == nil && gid != *group {
		v.cfg.Tell(t.pod, v1.EventTypeWarning, "AlreadyMountedVolume", fmt.Sprintf("The requested "+
			"fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
			*group, t.pv.Name, gid))
	}
}
