package csitest

import (
	"context"
	"path"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Names of calls.
const (
	Info         = "NodeGetInfo"
	Capabilities = "NodeGetCapabilities"
	Stage        = "NodeStageVolume"
	Unstage      = "NodeUnstageVolume"
	Publish      = "NodePublishVolume"
	Unpublish    = "NodeUnpublishVolume"
	Expand       = "NodeExpandVolume"
	Stats        = "NodeGetVolumeStats"
)

// services has the driver's gRPC services; its methods have the driver's lock.
type services struct {
	csipb.UnimplementedNodeServer
	driver *Driver
}

func (s services) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (
	*csipb.NodeGetInfoResponse, error) {
	return s.driver.cfg.Info, nil
}

func (s services) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (
	*csipb.NodeGetCapabilitiesResponse, error) {
	out := &csipb.NodeGetCapabilitiesResponse{}
	for _, one := range s.driver.cfg.Can {
		out.Capabilities = append(out.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{
				Rpc: &csipb.NodeServiceCapability_RPC{Type: one},
			}})
	}
	return out, nil
}

func (s services) NodeStageVolume(_ context.Context, req *csipb.NodeStageVolumeRequest) (
	*csipb.NodeStageVolumeResponse, error) {
	return &csipb.NodeStageVolumeResponse{}, s.driver.volumes.stage(req)
}

func (s services) NodeUnstageVolume(_ context.Context, req *csipb.NodeUnstageVolumeRequest) (
	*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, s.driver.volumes.unstage(req)
}

func (s services) NodePublishVolume(_ context.Context, req *csipb.NodePublishVolumeRequest) (
	*csipb.NodePublishVolumeResponse, error) {
	return &csipb.NodePublishVolumeResponse{}, s.driver.volumes.publish(req)
}

func (s services) NodeUnpublishVolume(_ context.Context, req *csipb.NodeUnpublishVolumeRequest) (
	*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, s.driver.volumes.unpublish(req)
}

func (s services) NodeExpandVolume(_ context.Context, req *csipb.NodeExpandVolumeRequest) (
	*csipb.NodeExpandVolumeResponse, error) {
	return &csipb.NodeExpandVolumeResponse{
		CapacityBytes: req.GetCapacityRange().GetRequiredBytes(),
	}, nil
}

func (s services) NodeGetVolumeStats(context.Context, *csipb.NodeGetVolumeStatsRequest) (
	*csipb.NodeGetVolumeStatsResponse, error) {
	return s.driver.cfg.Stats, nil
}

// handle is an interceptor. It records a call to the node service, and has it do its work, with the
// driver's lock, and misbehave as its fault says.
func (d *Driver) handle(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	do grpc.UnaryHandler) (resp any, err error) {
	if _, ours := info.Server.(services); !ours {
		return do(ctx, req)
	}
	f := d.begin(path.Base(info.FullMethod), req.(proto.Message))
	if f.Works() {
		if resp, err = d.locked(ctx, req, do); err != nil {
			return nil, err
		}
	}
	err = f.Suffer(ctx)
	if ctx.Err() != nil {
		d.canceled.Add(1)
	}
	return resp, err
}

// Canceled returns how many calls their caller has ended.
func (d *Driver) Canceled() int { return int(d.canceled.Load()) }

func (d *Driver) locked(ctx context.Context, req any, do grpc.UnaryHandler) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return do(ctx, req)
}

func refuse(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}
