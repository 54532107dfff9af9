package csitest

import (
	"context"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
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

// services has the driver's gRPC services.
type services struct {
	csipb.UnimplementedNodeServer
	driver *Driver
}

func (s services) NodeGetInfo(ctx context.Context, req *csipb.NodeGetInfoRequest) (
	*csipb.NodeGetInfoResponse, error) {
	var out *csipb.NodeGetInfoResponse
	err := s.driver.handle(ctx, Info, req, func() error {
		out = s.driver.cfg.Info
		return nil
	})
	return out, err
}

func (s services) NodeGetCapabilities(ctx context.Context,
	req *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	out := &csipb.NodeGetCapabilitiesResponse{}
	err := s.driver.handle(ctx, Capabilities, req, func() error {
		for _, one := range s.driver.cfg.Can {
			out.Capabilities = append(out.Capabilities, &csipb.NodeServiceCapability{
				Type: &csipb.NodeServiceCapability_Rpc{
					Rpc: &csipb.NodeServiceCapability_RPC{Type: one},
				}})
		}
		return nil
	})
	return out, err
}

func (s services) NodeStageVolume(ctx context.Context, req *csipb.NodeStageVolumeRequest) (
	*csipb.NodeStageVolumeResponse, error) {
	return &csipb.NodeStageVolumeResponse{}, s.driver.handle(ctx, Stage, req, func() error {
		return s.driver.volumes.stage(req)
	})
}

func (s services) NodeUnstageVolume(ctx context.Context, req *csipb.NodeUnstageVolumeRequest) (
	*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, s.driver.handle(ctx, Unstage, req, func() error {
		return s.driver.volumes.unstage(req)
	})
}

func (s services) NodePublishVolume(ctx context.Context, req *csipb.NodePublishVolumeRequest) (
	*csipb.NodePublishVolumeResponse, error) {
	return &csipb.NodePublishVolumeResponse{}, s.driver.handle(ctx, Publish, req, func() error {
		return s.driver.volumes.publish(req)
	})
}

func (s services) NodeUnpublishVolume(ctx context.Context, req *csipb.NodeUnpublishVolumeRequest) (
	*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, s.driver.handle(ctx, Unpublish, req, func() error {
		return s.driver.volumes.unpublish(req)
	})
}

func (s services) NodeExpandVolume(ctx context.Context, req *csipb.NodeExpandVolumeRequest) (
	*csipb.NodeExpandVolumeResponse, error) {
	out := &csipb.NodeExpandVolumeResponse{
		CapacityBytes: req.GetCapacityRange().GetRequiredBytes(),
	}
	return out, s.driver.handle(ctx, Expand, req, func() error { return nil })
}

func (s services) NodeGetVolumeStats(ctx context.Context, req *csipb.NodeGetVolumeStatsRequest) (
	*csipb.NodeGetVolumeStatsResponse, error) {
	var out *csipb.NodeGetVolumeStatsResponse
	err := s.driver.handle(ctx, Stats, req, func() error {
		out = s.driver.cfg.Stats
		return nil
	})
	return out, err
}

// handle records a call, and does its work or what its fault says. do has the driver's lock.
func (d *Driver) handle(ctx context.Context, rpc string, req proto.Message,
	do func() error) error {
	f := d.begin(rpc, req)
	if f.Err == nil && !f.Hang || f.Done {
		if err := d.locked(do); err != nil {
			return err
		}
	}
	if f.Hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return f.Err
}

func (d *Driver) locked(do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return do()
}

func refuse(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}
