package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/numalet/numalet/agent/storage/volume/csi"
)

// csiBlocks are volumes of CSI drivers that containers have as devices. The driver puts the device
// somewhere; the agent mounts that on a file of the pod, and keeps it open by a loop device, as the
// kubelet does, so that no other device can take its number.
func csiBlocks() plugin {
	return plugin{from: byPVCs, field: "csi", name: csiName, block: true,
		facts: csiFacts, recall: recallCSI, driver: csiDriver(),
		path: func(used) string { return "" },
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			link := t.place().device(t.podDir)
			if m.csi.isMapped(t, link) {
				return time.Time{}, nil
			}
			return time.Time{}, m.csi.setUp(ctx, t, func(target string, _ csi.Result) error {
				return m.csi.mapPublished(t, target, link)
			})
		}}
}

// isMapped reports whether the pod has the device already.
func (d csiDisks) isMapped(t target, link string) bool {
	if d.cfg.CSI == nil {
		return false
	}
	for _, u := range d.cfg.CSI.Uses(t.pod.UID) {
		if u.Name != t.place().name || u.Device == "" {
			continue
		}
		return d.mapped.hasDevice(u.Device, link)
	}
	return false
}

// mapPublished makes the pod's device of what the driver has published.
func (d csiDisks) mapPublished(t target, published, link string) error {
	device, err := filepath.EvalSymlinks(published)
	if err != nil {
		return fmt.Errorf("the driver has published no device: %w", err)
	}
	return d.mapped.mapDevice(t, device, d.cfg.CSI.DeviceFile(t.place().name, t.pod.UID), link)
}
