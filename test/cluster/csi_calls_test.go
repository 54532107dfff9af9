package cluster_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
)

// csiUse is what the calls to drivers have made of a volume.
type csiUse struct {
	attached  map[string]bool // nodes
	staged    map[string]bool // paths
	published map[string]bool // targets
}

// csiUses has the volumes' uses, and what is against them.
type csiUses struct {
	t       *testing.T
	volumes map[string]*csiUse
	targets map[string]string // the volume that a target is of
	// shared volumes are published for several pods.
	shared map[string]bool
}

// checkCalls checks what drivers rely on: no volume is unstaged or detached while it is published, none is
// published that is not staged, one target has one volume, and one volume one node, and one target unless
// it is shared. At the given times the node lost its mounts.
func checkCalls(t *testing.T, calls []csidriver.Call, lost []time.Time, shared ...string) {
	t.Helper()
	u := csiUses{t, map[string]*csiUse{}, map[string]string{}, map[string]bool{}}
	for _, id := range shared {
		u.shared[id] = true
	}
	for _, c := range calls {
		for len(lost) > 0 && c.Began.After(lost[0]) {
			u.lose()
			lost = lost[1:]
		}
		u.take(c)
	}
}

func (u csiUses) of(volume string) *csiUse {
	if u.volumes[volume] == nil {
		u.volumes[volume] = &csiUse{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	}
	return u.volumes[volume]
}

// lose forgets all mounts; attachments stay.
func (u csiUses) lose() {
	clear(u.targets)
	for _, v := range u.volumes {
		clear(v.staged)
		clear(v.published)
	}
}

func (u csiUses) take(c csidriver.Call) {
	v, target, staging := u.of(c.Volume), c.Field("targetPath"), c.Field("stagingTargetPath")
	switch c.Method {
	case "ControllerPublishVolume":
		if node := c.Field("nodeId"); c.Done() {
			v.attached[node] = true
		}
		if len(v.attached) > 1 {
			u.t.Errorf("volume %s is attached to %v", c.Volume, slices.Sorted(maps.Keys(v.attached)))
		}
	case "NodeStageVolume":
		if c.Done() {
			v.staged[staging] = true
		}
		if len(v.staged) > 1 {
			u.t.Errorf("volume %s is staged at %v", c.Volume, slices.Sorted(maps.Keys(v.staged)))
		}
	case "NodePublishVolume":
		u.publish(c, v, target, staging)
	case "NodeUnpublishVolume":
		if c.Done() {
			delete(u.targets, target)
			delete(v.published, target)
		}
	case "NodeUnstageVolume", "ControllerUnpublishVolume":
		if len(v.published) > 0 {
			u.t.Errorf("%s of volume %s, which is published at %v", c.Method, c.Volume,
				slices.Sorted(maps.Keys(v.published)))
		}
		if c.Method == "ControllerUnpublishVolume" && len(v.staged) > 0 {
			u.t.Errorf("volume %s is detached while it is staged at %v", c.Volume, slices.Sorted(maps.Keys(v.staged)))
		}
		if c.Done() && staging != "" {
			delete(v.staged, staging)
		} else if c.Done() {
			delete(v.attached, c.Field("nodeId"))
		}
	}
}

func (u csiUses) publish(c csidriver.Call, v *csiUse, target, staging string) {
	if staging != "" && !v.staged[staging] {
		u.t.Errorf("volume %s is published and not staged at %s", c.Volume, staging)
	}
	if other := u.targets[target]; other != "" && other != c.Volume {
		u.t.Errorf("%s is the target of %s and %s", target, other, c.Volume)
	}
	if u.targets[target] = c.Volume; c.Done() {
		v.published[target] = true
	}
	if len(v.published) > 1 && !u.shared[c.Volume] {
		u.t.Errorf("volume %s is published at %v", c.Volume, slices.Sorted(maps.Keys(v.published)))
	}
}
