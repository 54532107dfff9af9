package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// Expand has the driver expand a published volume to at least so many bytes. fresh: the volume is
// being set up, and has its turn already. If it fails, the first value says how.
func (m *Mounts) Expand(ctx context.Context, v Volume, target string, bytes int64, fresh bool) (
	operation.Growth, error) {
	if !fresh {
		done, err := m.book.Take(ctx, v.Key)
		if err != nil {
			return operation.GrowthUnknown, err
		}
		defer done()
	}
	verdict := operation.GrowthFailed
	err := m.cfg.Drivers.call(v.migrated(ctx), v.Driver,
		asking(func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
			if !can[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME] {
				verdict = operation.GrowthUnable
				return fmt.Errorf("NodeExpand is not supported by the CSI driver %s", v.Driver)
			}
			secrets, err := m.cfg.secret(ctx, "NodeExpandSecretRef", v.Secrets.Expand)
			if err != nil {
				return err
			}
			_, err = c.NodeExpandVolume(ctx, &csipb.NodeExpandVolumeRequest{
				VolumeId: v.Handle, VolumePath: target, StagingTargetPath: m.paths.staging(v),
				CapacityRange:    &csipb.CapacityRange{RequiredBytes: bytes},
				VolumeCapability: v.capability(can), Secrets: secrets,
			})
			return err
		}))
	switch said := status.Code(err); {
	case err == nil:
		return 0, nil
	case verdict == operation.GrowthUnable:
		return operation.GrowthUnable, err
	case !isFinal(err):
		return operation.GrowthUnknown, err
	case said == codes.FailedPrecondition:
		return operation.GrowthUnfit, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
	case said == codes.InvalidArgument || said == codes.OutOfRange || said == codes.NotFound:
		return operation.GrowthInfeasible, fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)
	default:
		return operation.GrowthFailed, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
	}
}
