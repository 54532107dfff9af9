package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Verdict says what a driver that did not expand a volume said of it.
type Verdict int

const (
	// Unknown: the driver may still be at work, or could not be called.
	Unknown Verdict = iota
	// Failed: it is not at work any more; a later call may succeed.
	Failed
	// Unfit: it cannot do so while the volume is used.
	Unfit
	// Infeasible: the volume cannot have that size.
	Infeasible
	// Unable: the driver expands no volumes on nodes.
	Unable
)

// Expand has the driver expand a published volume to at least so many bytes. fresh: the volume is
// being set up, and has its turn already. If it fails, the verdict says how.
func (m *Mounts) Expand(ctx context.Context, v Volume, target string, bytes int64, fresh bool) (
	Verdict, error) {
	if !fresh {
		done, err := m.book.Take(ctx, v.Key)
		if err != nil {
			return Unknown, err
		}
		defer done()
	}
	verdict := Failed
	err := m.cfg.Drivers.call(v.migrated(ctx), v.Driver,
		asking(func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
			if !can[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME] {
				verdict = Unable
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
	case verdict == Unable:
		return Unable, err
	case !isFinal(err):
		return Unknown, err
	case said == codes.FailedPrecondition:
		return Unfit, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
	case said == codes.InvalidArgument || said == codes.OutOfRange || said == codes.NotFound:
		return Infeasible, fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)
	default:
		return Failed, fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
	}
}
