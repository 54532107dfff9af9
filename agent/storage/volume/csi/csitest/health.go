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

func (s services) NodeGetVolumeHealth(_ context.Context, req *csipb.NodeGetVolumeHealthRequest) (
	*csipb.NodeGetVolumeHealthResponse, error) {
	return &csipb.NodeGetVolumeHealthResponse{VolumeHealth: &csipb.VolumeHealth{
		VolumeId: req.GetVolumeId(), HealthStatuses: s.driver.ill.volume}}, nil
}

func (s services) NodeGetStorageHealth(context.Context, *csipb.NodeGetStorageHealthRequest) (
	*csipb.NodeGetStorageHealthResponse, error) {
	return &csipb.NodeGetStorageHealthResponse{BackendHealth: s.driver.ill.storage}, nil
}
