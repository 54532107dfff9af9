package csidriver

import (
	"context"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GetPluginInfo returns the driver's name.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (
	*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.config.Name, VendorVersion: "1.0.0"}, nil
}

// GetPluginCapabilities returns which services there are.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if len(d.config.Topology) > 0 {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	out := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range services {
		out.Capabilities = append(out.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}}})
	}
	out.Capabilities = append(out.Capabilities, &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE}}})
	return out, nil
}

// Probe reports that the driver is ready.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// ControllerGetCapabilities returns what the controller offers.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (
	*csi.ControllerGetCapabilitiesResponse, error) {
	kinds := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	}
	if !d.config.NoAttach {
		kinds = append(kinds, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY)
	}
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, k := range kinds {
		out.Capabilities = append(out.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: k}}})
	}
	return out, nil
}

// CreateVolume makes the volume of that name; one that fits is there already: success.
func (d *Driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (
	*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("the request has no name or no capability")
	}
	if err := d.possible(r.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	if r.GetVolumeContentSource() != nil {
		return nil, invalid("volumes have no source here")
	}
	bytes, err := size(r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, err
	}
	v, _, err := d.find(idOf(r.GetName()))
	switch {
	case status.Code(err) == codes.NotFound:
		v = volume{ID: idOf(r.GetName()), Name: r.GetName(), Size: bytes}
		if err := d.save(v); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		limit := r.GetCapacityRange().GetLimitBytes()
		if v.Size < r.GetCapacityRange().GetRequiredBytes() || limit > 0 && v.Size > limit {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes", v.Name, v.Size)
		}
	}
	if err := d.allocate(v); err != nil {
		return nil, err
	}
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Size, VolumeContext: r.GetParameters()}
	if len(d.config.Topology) > 0 {
		out.AccessibleTopology = []*csi.Topology{{Segments: d.config.Topology}}
	}
	return &csi.CreateVolumeResponse{Volume: out}, nil
}

// DeleteVolume removes a volume that is attached to no node.
func (d *Driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (
	*csi.DeleteVolumeResponse, error) {
	v, dir, err := d.find(r.GetVolumeId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.DeleteVolumeResponse{}, nil
	case err != nil:
		return nil, err
	case len(v.Attached) > 0:
		return nil, unready("volume %s is attached", v.ID)
	}
	return &csi.DeleteVolumeResponse{}, os.RemoveAll(dir)
}

// ControllerPublishVolume attaches a volume. Only one node may have one for writing.
func (d *Driver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (
	*csi.ControllerPublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetNodeId() == "" || r.GetVolumeCapability() == nil {
		return nil, invalid("the request has no volume, node or capability")
	}
	v, _, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetNodeId() != d.config.Node && !slices.Contains(d.config.Nodes, r.GetNodeId()) {
		return nil, absent("there is no node %s", r.GetNodeId())
	}
	for node, readonly := range v.Attached {
		if node != r.GetNodeId() && !(readonly && r.GetReadonly()) {
			return nil, unready("volume %s is attached to node %s", v.ID, node)
		}
	}
	if readonly, is := v.Attached[r.GetNodeId()]; is && readonly != r.GetReadonly() {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached otherwise", v.ID)
	}
	if v.Attached == nil {
		v.Attached = map[string]bool{}
	}
	v.Attached[r.GetNodeId()] = r.GetReadonly()
	return &csi.ControllerPublishVolumeResponse{
		PublishContext: map[string]string{"device": "image-of-" + v.ID}}, d.save(v)
}

// ControllerUnpublishVolume detaches a volume from a node, or from all.
func (d *Driver) ControllerUnpublishVolume(_ context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (
	*csi.ControllerUnpublishVolumeResponse, error) {
	v, _, err := d.find(r.GetVolumeId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	case err != nil:
		return nil, err
	case r.GetNodeId() == "":
		v.Attached = nil
	default:
		delete(v.Attached, r.GetNodeId())
	}
	return &csi.ControllerUnpublishVolumeResponse{}, d.save(v)
}

// ValidateVolumeCapabilities confirms what is possible.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context,
	r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, _, err := d.find(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("the request has no capability")
	}
	if err := d.possible(r.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(),
			Parameters: r.GetParameters()}}, nil
}

// ControllerExpandVolume makes a volume larger; its file system grows on the node.
func (d *Driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (
	*csi.ControllerExpandVolumeResponse, error) {
	v, _, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetCapacityRange() == nil {
		return nil, invalid("the request has no size")
	}
	bytes, err := size(r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, err
	}
	if bytes > v.Size {
		if v.Size = bytes; d.save(v) != nil || d.allocate(v) != nil {
			return nil, status.Errorf(codes.Internal, "volume %s cannot be %d bytes large", v.ID, bytes)
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: true}, nil
}

// possible checks that a volume can be had so.
func (d *Driver) possible(all ...*csi.VolumeCapability) error {
	for _, c := range all {
		fs := c.GetMount().GetFsType()
		switch {
		case c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN:
			return invalid("a capability has no access mode")
		case c.GetBlock() == nil && c.GetMount() == nil:
			return invalid("a capability is neither of a block device nor of a mount")
		case fs != "" && fs != "ext4" && fs != "xfs":
			return invalid("there is no file system %q, only ext4 and xfs", fs)
		}
	}
	return nil
}
