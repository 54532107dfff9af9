package volume

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/internal/await"
)

// identify has the volumes of a pod with lost records named, or given up, before the pod's volumes are
// taken back. It fails while the API server does not answer, and at first if it refuses to:
// nothing is undone then.
func (d csiDisks) identify(ctx context.Context, pod types.UID, podDir string,
	which func(csi.Use) bool) error {
	return await.Each(d.cfg.CSI.Lost(pod), -1, func(u csi.Use) error {
		if !which(u) {
			return nil
		}
		of, err := d.persistent(ctx, u)
		if err == nil {
			d.cfg.CSI.Recall(of, pod, "persistent volume "+of.Name)
			return nil
		}
		away := operation.IsUnanswered(err)
		if away || apierrors.IsForbidden(err) && d.cfg.CSI.Refused(u) {
			return fmt.Errorf("volume %s: its record is lost, and what it is is not known: %w", u.Name, err)
		}
		if d.cfg.CSI.Guess(u) {
			return nil
		}
		return d.forsake(ctx, podDir, u)
	})
}

// persistent reads the persistent volume that a directory of a pod is named after.
func (d csiDisks) persistent(ctx context.Context, u csi.Use) (of csi.Volume, err error) {
	if d.cfg.PVCs == nil {
		return of, errors.New("there is no API server")
	}
	pv, err := d.cfg.PVCs.PersistentVolume(ctx, u.Name)
	if err != nil {
		return of, asked("persistent volume "+u.Name, err)
	}
	is, err := BoundPVC{Volume: pv}.typed()
	if err != nil {
		return of, err
	}
	if is.plugin.name != csiName || is.plugin.block != (u.Device != "") {
		return of, fmt.Errorf("persistent volume %s is none of a CSI driver, or has another volumeMode", u.Name)
	}
	return d.cfg.csiVolume(nil, is)
}

// forsake removes what the agent can of a volume that nothing names.
func (d csiDisks) forsake(ctx context.Context, podDir string, u csi.Use) error {
	if err := d.unmap(ctx, podDir, u); err != nil {
		return err
	}
	if u.Device == "" {
		mounted, err := d.isMounted(u.Target)
		if err == nil && mounted {
			err = d.unmount(ctx, u.Target)
		}
		if err != nil {
			return err
		}
	}
	d.cfg.CSI.Forsake(u)
	return nil
}
