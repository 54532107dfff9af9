package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
)

// csiName is the name of the type of volumes that drivers make.
const csiName = "kubernetes.io/csi"

// csiDisks has CSI drivers make volumes, grow them as they are set up, and take them back.
type csiDisks struct {
	*node
	mapped mapped
	grower *Grower
}

// republishPeriod is how often volumes are published again if their drivers want that: about as often
// as the kubelet looks at a pod that nothing happens to.
const republishPeriod = time.Minute

// csiVolumes are volumes with a file system that CSI drivers make.
func csiVolumes() plugin {
	return plugin{from: inPods | byPVCs, field: "csi", name: csiName, relabel: true,
		facts: csiFacts, recall: recallCSI, driver: csiDriver(),
		held: &held{release: releaseCSI, leave: leaveOneCSI, known: isKnownToCSI, lost: isLostToCSI,
			inside: csi.MountName},
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			err := m.csi.setUp(ctx, t, func(_ string, got csi.Result) error {
				if got.Give && m.asRoot {
					if err := m.cfg.giveToGroup(t); err != nil {
						return err
					}
				}
				return t.markReady()
			})
			if err == nil && m.cfg.isRenewed(t.used) {
				return time.Now().Add(republishPeriod), nil
			}
			return time.Time{}, err
		}}
}

func csiDriver() *driver {
	return &driver{lacks: lacksCSI, published: isPublishedByCSI, renewed: isRenewedByCSI,
		contexts: contextsOfCSI, expand: expandCSI, room: roomOfCSI, health: healthOfCSI}
}

func csiFacts(u used) facts {
	if u.pv != nil {
		return facts{mounted: true, driver: u.pv.Spec.CSI.Driver}
	}
	source := u.volume.CSI
	return facts{mounted: true, polled: true, driver: source.Driver,
		readOnly: source.ReadOnly != nil && *source.ReadOnly}
}

// setUp has the volume's driver make it, and calls then with where it is. The driver may take
// longer than ctx: then a later call waits on.
func (d csiDisks) setUp(ctx context.Context, t target,
	then func(target string, got csi.Result) error) error {
	of, err := d.cfg.csiVolume(t.pod, t.used)
	if err != nil {
		return err
	}
	r := csi.Request{Volume: of, Pod: t.pod}
	d.cfg.CSI.Want(r)
	err = d.foreign(ctx, t, func() error {
		ctx := context.WithoutCancel(ctx)
		return d.cfg.CSI.SetUp(ctx, r, func(target string, got csi.Result) error {
			if t.read != nil {
				g := growing{pod: t.pod, used: t.used, pvc: t.read, pv: t.pv}
				if err := d.grower.grow(ctx, g, true); err != nil {
					return err
				}
			}
			return then(target, got)
		})
	})
	if call, has := d.cfg.CSI.Awaited(of.Key); has && err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("driver %s has not answered %s yet: %w", of.Driver, call.Method, ctx.Err())
	}
	return err
}

// isPublishedByCSI reports whether a pod has the volume of a driver that is registered.
func isPublishedByCSI(c Config, pod *v1.Pod, u used) bool {
	of, err := c.csiVolume(pod, u)
	return err == nil && c.CSI.IsPublished(of.Key)
}

// lacksCSI returns why the driver cannot make the volume now.
func lacksCSI(ctx context.Context, c Config, pod *v1.Pod, u used) error {
	of, err := c.csiVolume(pod, u)
	if err != nil {
		return err
	}
	return c.CSI.Lack(ctx, of)
}

// contextsOfCSI reports whether the driver mounts with SELinux contexts.
func contextsOfCSI(ctx context.Context, c Config, u used) (bool, error) {
	if c.CSI == nil {
		return false, nil
	}
	return c.CSI.MountsContexts(ctx, u.facts().driver)
}

// ReasonUnmount is the reason of events, and of problems, of volumes that cannot be taken back.
const ReasonUnmount = "FailedUnMount"

var errNoDrivers = errors.New("CSI drivers cannot register here")

// csiVolume returns the volume as its driver knows it, if the node has drivers.
func (c Config) csiVolume(pod *v1.Pod, u used) (csi.Volume, error) {
	if c.CSI == nil {
		return csi.Volume{}, errNoDrivers
	}
	if u.pv == nil {
		return csi.Ephemeral(pod, u.volume)
	}
	out, err := csi.Persistent(u.pv, u.readOnly)
	out.Migrated, out.Label = u.migrated, u.label
	return out, err
}

// isRenewedByCSI reports whether the volume is published again and again.
func isRenewedByCSI(c Config, u used) bool {
	return !u.plugin.block && c.CSI != nil && c.CSI.Republishes(u.facts().driver)
}

// isKnownToCSI reports whether there is a record of a volume that an earlier run has left.
func isKnownToCSI(c Config, pod types.UID, name string) bool {
	return c.CSI == nil ||
		slices.ContainsFunc(c.CSI.Uses(pod), func(u csi.Use) bool { return u.Name == name })
}

// isLostToCSI reports whether a volume of the pod has no record.
func isLostToCSI(c Config, pod types.UID) bool { return c.CSI != nil && len(c.CSI.Lost(pod)) > 0 }

// recallCSI tells what the volume is, as its driver knows it.
func recallCSI(m *makers, pod *v1.Pod, uid types.UID, u used, from string) {
	if of, err := m.cfg.csiVolume(pod, u); err == nil {
		m.cfg.CSI.Recall(of, uid, from)
	}
}

// releaseCSI has all volumes of the pod unpublished, each by itself.
func releaseCSI(ctx context.Context, m *makers, pod types.UID) error {
	return m.csi.leave(ctx, pod, func(csi.Use) bool { return true })
}

// leaveOneCSI has one volume with a file system unpublished.
func leaveOneCSI(ctx context.Context, m *makers, pod types.UID, name string) error {
	return m.csi.leave(ctx, pod, func(u csi.Use) bool { return u.Device == "" && u.Name == name })
}

// leave has volumes of a pod unpublished. It waits for each driver at most unmountWait; a later
// call waits on.
func (d csiDisks) leave(ctx context.Context, pod types.UID, which func(csi.Use) bool) error {
	if d.cfg.CSI == nil {
		return nil
	}
	podDir, err := d.podDir(pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	unnamed := d.identify(ctx, pod, podDir, which)
	return errors.Join(unnamed, await.Each(d.cfg.CSI.Uses(pod), -1, func(u csi.Use) error {
		if !which(u) {
			return nil
		}
		return d.calls.do(ctx, "unpublish "+u.Target, func() error {
			ctx := context.WithoutCancel(ctx)
			return d.cfg.CSI.Leave(ctx, u, func() error { return d.unmap(ctx, podDir, u) })
		})
	}))
}

// unmap removes what the agent made of a block volume for the pod.
func (d csiDisks) unmap(ctx context.Context, podDir string, u csi.Use) error {
	if u.Device == "" {
		return nil
	}
	if err := d.mapped.endLoops(u.Device); err != nil {
		return err
	}
	if err := files.Remove(place{csiName, u.Name}.device(podDir)); err != nil {
		return err
	}
	return d.mapped.free(ctx, u.Device)
}

// expandCSI has the driver expand the volume.
func expandCSI(ctx context.Context, c Config, g growing, fresh bool) (operation.Growth, error) {
	of, err := c.csiVolume(g.pod, g.used)
	if err != nil {
		return operation.GrowthUnknown, err
	}
	return c.CSI.Expand(ctx, of, c.CSI.Target(of, g.pod.UID), g.to.to.Value(), fresh)
}

// errNotMeasured is the error of a volume whose driver cannot say what room it has.
var errNotMeasured = errors.New("the driver does not measure volumes")

// roomOfCSI returns what the volume's driver says of its room.
func roomOfCSI(c Config, pod *v1.Pod, u used) (diskusage.Room, error) {
	of, err := c.csiVolume(pod, u)
	if err != nil {
		return diskusage.Room{}, err
	}
	path := c.CSI.Target(of, pod.UID)
	if of.Block { // drivers know the kubelet's path
		path = c.CSI.DeviceFile(of.Path, pod.UID)
	}
	room, can, err := c.CSI.Room(context.Background(), of, path)
	switch {
	case err != nil && !csi.Answered(err):
		return room, operation.Unanswered{Err: err}
	case err == nil && !can:
		return room, errNotMeasured
	default:
		return room, err
	}
}

// healthOfCSI asks the volume's driver. Whatever fails is no answer.
func healthOfCSI(c Config, pod *v1.Pod, u used) ([]v1.VolumeHealthCondition, error) {
	of, err := c.csiVolume(pod, u)
	if err != nil {
		return nil, err
	}
	out, err := c.CSI.Health(context.Background(), of, pod.UID)
	if err != nil {
		return nil, operation.Unanswered{Err: err}
	}
	return out, nil
}
