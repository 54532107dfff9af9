package csidriver

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ephemeral is the key in a volume's context that marks an inline volume.
const ephemeral = "csi.storage.k8s.io/ephemeral"

// NodeGetInfo returns the node's id, how many volumes it takes, and where it is.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (
	*csi.NodeGetInfoResponse, error) {
	out := &csi.NodeGetInfoResponse{NodeId: d.config.Node, MaxVolumesPerNode: d.config.MaxVolumes}
	if len(d.config.Topology) > 0 {
		out.AccessibleTopology = &csi.Topology{Segments: d.config.Topology}
	}
	return out, nil
}

// NodeGetCapabilities returns what the node service offers.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	kinds := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	}
	for kind, offered := range map[csi.NodeServiceCapability_RPC_Type]bool{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME: !d.config.NoStage,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:   d.config.MountGroup,
	} {
		if offered {
			kinds = append(kinds, kind)
		}
	}
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, k := range kinds {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: k}}})
	}
	return out, nil
}

// NodeStageVolume mounts a volume's file system at the staging path; for a block device it sets up
// the loop device.
func (d *Driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (
	*csi.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, invalid("the request has no volume, path or capability")
	}
	if err := d.possible(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, dir, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, attached := v.Attached[d.config.Node]; !attached && !d.config.NoAttach {
		return nil, unready("volume %s is not attached to this node", v.ID)
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		_, err := loopOf(image(dir), true)
		return &csi.NodeStageVolumeResponse{}, err
	}
	return &csi.NodeStageVolumeResponse{},
		mountVolume(dir, r.GetStagingTargetPath(), r.GetVolumeCapability())
}

// NodeUnstageVolume undoes NodeStageVolume; what is not there is success.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (
	*csi.NodeUnstageVolumeResponse, error) {
	dir, err := d.dirOf(r.GetVolumeId())
	if err != nil || r.GetStagingTargetPath() == "" {
		return nil, errors.Join(err, wanting(r.GetStagingTargetPath()))
	}
	if err := unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, detachVolume(dir)
}

// NodePublishVolume gives a pod the volume at the target path.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	target, capability := r.GetTargetPath(), r.GetVolumeCapability()
	if r.GetVolumeId() == "" || target == "" || capability == nil {
		return nil, invalid("the request has no volume, path or capability")
	}
	if err := d.possible(capability); err != nil {
		return nil, err
	}
	if r.GetVolumeContext()[ephemeral] == "true" {
		return d.publishInline(r)
	}
	_, dir, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	switch staged := r.GetStagingTargetPath(); {
	case staged == "" && !d.config.NoStage:
		return nil, unready("the request has no path where the volume is staged")
	case capability.GetBlock() != nil:
		device, err := loopOf(image(dir), d.config.NoStage)
		if err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, bindFile(device, target)
	case d.config.NoStage:
		if err := mountVolume(dir, target, capability); err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, readonly(target, r.GetReadonly())
	case !mounted(staged):
		return nil, unready("volume %s is not staged at %s", r.GetVolumeId(), staged)
	default:
		if err := alone(dir, capability, staged, target); err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, bindDir(staged, target, r.GetReadonly())
	}
}

// alone refuses a second target of a volume for a single writer.
func alone(dir string, c *csi.VolumeCapability, staged, target string) error {
	const single = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	if c.GetAccessMode().GetMode() != single {
		return nil
	}
	device, err := loopOf(image(dir), false)
	if err != nil {
		return err
	}
	for _, at := range mountsOf(device) {
		if at != staged && at != target {
			return unready("the volume is published at %s", at)
		}
	}
	return nil
}

// publishInline makes a pod's own directory; it goes with its publishing.
func (d *Driver) publishInline(r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	if _, err := d.dirOf(r.GetVolumeId()); err != nil {
		return nil, err
	}
	own := filepath.Join(d.config.Dir, "ephemeral", r.GetVolumeId())
	if err := os.MkdirAll(own, 0o777); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, bindDir(own, r.GetTargetPath(), r.GetReadonly())
}

// NodeUnpublishVolume removes the target path; what is not there is success.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	dir, err := d.dirOf(r.GetVolumeId())
	if err != nil || r.GetTargetPath() == "" {
		return nil, errors.Join(err, wanting(r.GetTargetPath()))
	}
	if err := unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.config.NoStage {
		if err := detachVolume(dir); err != nil {
			return nil, err
		}
	}
	return &csi.NodeUnpublishVolumeResponse{},
		os.RemoveAll(filepath.Join(d.config.Dir, "ephemeral", filepath.Base(dir)))
}

// NodeExpandVolume makes a file system, or the loop device, as large as its volume.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (
	*csi.NodeExpandVolumeResponse, error) {
	v, dir, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := wanting(r.GetVolumePath()); err != nil {
		return nil, err
	}
	if _, err := os.Stat(r.GetVolumePath()); err != nil {
		return nil, absent("there is nothing at %s", r.GetVolumePath())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, growVolume(dir, r.GetVolumePath())
}

// NodeGetVolumeStats returns what a published volume has and uses.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	if err := cmp.Or(wanting(r.GetVolumeId()), wanting(r.GetVolumePath())); err != nil {
		return nil, err
	}
	v, _, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(r.GetVolumePath())
	if err != nil {
		return nil, absent("there is nothing at %s", r.GetVolumePath())
	}
	if !info.IsDir() {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: v.Size}}}, nil
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &stat); err != nil {
		return nil, err
	}
	block := stat.Bsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(stat.Blocks) * block,
			Available: int64(stat.Bavail) * block, Used: int64(stat.Blocks-stat.Bfree) * block},
		{Unit: csi.VolumeUsage_INODES, Total: int64(stat.Files), Available: int64(stat.Ffree),
			Used: int64(stat.Files - stat.Ffree)},
	}}, nil
}

func wanting(text string) error {
	if text == "" {
		return invalid("the request has no volume or path")
	}
	return nil
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func absent(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format, args...)
}

func unready(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}
