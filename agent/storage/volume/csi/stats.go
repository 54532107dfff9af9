package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/diskusage"
)

// Room returns what the driver of a volume says of its room; can is false if it cannot say that.
// target is where the volume is published.
func (m *Mounts) Room(ctx context.Context, v Volume, target string) (
	room diskusage.Room, can bool, err error) {
	measure := func(ctx context.Context, c csipb.NodeClient, has Capabilities) error {
		if can = has[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS]; !can {
			return nil
		}
		said, err := c.NodeGetVolumeStats(ctx, &csipb.NodeGetVolumeStatsRequest{
			VolumeId: v.Handle, VolumePath: target,
		})
		if err != nil {
			return err
		}
		room, err = roomOf(v.Driver, said.GetUsage())
		return err
	}
	err = m.cfg.Drivers.call(ctx, v.Driver, asking(measure))
	return room, can, err
}

// roomOf adds up a driver's answer. A negative number is refused.
func roomOf(driver string, said []*csipb.VolumeUsage) (out diskusage.Room, err error) {
	if len(said) == 0 {
		return out, fmt.Errorf("CSI driver %s says nothing of the use of a volume", driver)
	}
	for _, one := range said {
		if min(one.GetTotal(), one.GetUsed(), one.GetAvailable()) < 0 {
			return out, fmt.Errorf("CSI driver %s says that %s of a volume are total %d, used %d, "+
				"available %d", driver, one.GetUnit(), one.GetTotal(), one.GetUsed(), one.GetAvailable())
		}
		total, used, free := uint64(one.GetTotal()), uint64(one.GetUsed()), uint64(one.GetAvailable())
		switch one.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			out.Capacity, out.Used, out.Available = total, used, free
		case csipb.VolumeUsage_INODES:
			out.Inodes, out.InodesUsed, out.InodesFree = total, used, free
		case csipb.VolumeUsage_UNKNOWN:
		}
	}
	return out, nil
}

// Target returns where a volume is published for a pod.
func (m *Mounts) Target(v Volume, pod types.UID) string {
	return m.paths.target(use{pod, v.Path, v.Block})
}
