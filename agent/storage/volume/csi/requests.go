package csi

import (
	"slices"
	"strconv"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/selinux"
)

// capability holds what calls for the volume say of it.
func (j job) capability(can Capabilities) *csipb.VolumeCapability {
	out := j.Volume.capability(can)
	if m := out.GetMount(); m != nil {
		if sc := j.Pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil &&
			can[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
			m.VolumeMountGroup = strconv.FormatInt(*sc.FSGroup, 10)
		}
		if j.Label != "" {
			m.MountFlags = append(slices.Clip(m.GetMountFlags()), selinux.Option(j.Label))
		}
	}
	return out
}

func (v Volume) capability(can Capabilities) *csipb.VolumeCapability {
	out := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{
		Mode: accessMode(v.mode(), can[csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]),
	}}
	if v.Block {
		out.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return out
	}
	out.AccessType = &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{
		FsType: v.FSType, MountFlags: v.Options}}
	return out
}

// accessMode returns CSI's name of an access mode. A driver that tells one writer on a node from
// several, is told which it is.
func accessMode(m v1.PersistentVolumeAccessMode, several bool) csipb.VolumeCapability_AccessMode_Mode {
	switch m {
	case v1.ReadWriteOnce:
		if several {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if several {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	default:
		return csipb.VolumeCapability_AccessMode_UNKNOWN
	}
}
