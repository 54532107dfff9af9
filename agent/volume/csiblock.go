package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/numalet/numalet/agent/volume/csi"
)

// csiBlocks are volumes of CSI drivers that containers have as devices. The driver puts the device
// somewhere; the agent mounts that on a file of the pod, and keeps it open by a loop device, as the
// kubelet does, so that no other device can take its number.
func csiBlocks() plugin {
	return plugin{from: byClaims, field: "csi", name: csiName, block: true, facts: csiFacts,
		path: func(used) string { return "" },
		setUp: func(ctx context.Context, v *Volumes, t target) (time.Time, error) {
			link := t.place().device(t.podDir)
			if (disks{v}).isMapped(t, link) {
				return time.Time{}, nil
			}
			return time.Time{}, (disks{v}).setUpCSI(ctx, t, func(target string, _ csi.Result) error {
				return (disks{v}).mapCSI(t, target, link)
			})
		}}
}

// isMapped reports whether the pod has the device already.
func (v disks) isMapped(t target, link string) bool {
	if v.cfg.CSI == nil {
		return false
	}
	for _, u := range v.cfg.CSI.Uses(t.pod.UID) {
		if u.Name != t.place().name || u.Device == "" {
			continue
		}
		return v.mapped.hasDevice(u.Device, link)
	}
	return false
}

// mapCSI makes the pod's device of what the driver has published.
func (v disks) mapCSI(t target, published, link string) error {
	device, err := filepath.EvalSymlinks(published)
	if err != nil {
		return fmt.Errorf("the driver has published no device: %w", err)
	}
	return v.mapped.mapDevice(t, device, v.cfg.CSI.DeviceFile(t.place().name, t.pod.UID), link)
}
