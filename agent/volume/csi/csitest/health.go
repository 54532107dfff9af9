package csitest

import (
	"context"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
)

// Names of calls about health.
const (
	VolumeHealth  = "NodeGetVolumeHealth"
	StorageHealth = "NodeGetStorageHealth"
)

// Ill replaces the answers to NodeGetVolumeHealth and NodeGetStorageHealth.
func (d *Driver) Ill(volume []*csipb.VolumeHealth_VolumeHealthEntry,
	storage []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ill.volume, d.ill.storage = volume, storage
}

// illness answers questions about health.
type illness struct {
	volume  []*csipb.VolumeHealth_VolumeHealthEntry
	storage []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth
}

func (s services) NodeGetVolumeHealth(ctx context.Context, req *csipb.NodeGetVolumeHealthRequest) (
	*csipb.NodeGetVolumeHealthResponse, error) {
	out := &csipb.NodeGetVolumeHealthResponse{VolumeHealth: &csipb.VolumeHealth{VolumeId: req.GetVolumeId()}}
	return out, s.driver.handle(ctx, VolumeHealth, req, func() error {
		out.VolumeHealth.HealthStatuses = s.driver.ill.volume
		return nil
	})
}

func (s services) NodeGetStorageHealth(ctx context.Context, req *csipb.NodeGetStorageHealthRequest) (
	*csipb.NodeGetStorageHealthResponse, error) {
	out := &csipb.NodeGetStorageHealthResponse{}
	return out, s.driver.handle(ctx, StorageHealth, req, func() error {
		out.BackendHealth = s.driver.ill.storage
		return nil
	})
}
