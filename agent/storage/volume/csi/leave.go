package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/agent/storage/volume/shared"
)

// Use is a volume that a pod uses.
type Use struct {
	use
	// Device is the file that a block volume is mounted on for the pod; "": the volume has a file
	// system.
	Device string
	// Name is the volume's, and Target where it is published.
	Name, Target string
}

// device is the file that the device of a block volume is mounted on for a pod.
func (p paths) device(u use) string { return p.block(u.name, "dev", string(u.pod)) }

// Uses returns the volumes that a pod uses, or is still to give up.
func (m *Mounts) Uses(pod types.UID) (out []Use) {
	for _, u := range slices.SortedFunc(maps.Keys(m.book.UsedBy(pod)), cmpUse) {
		out = append(out, m.paths.useOf(u))
	}
	return out
}

func (p paths) useOf(u use) Use {
	out := Use{use: u, Name: u.name, Target: p.target(u)}
	if u.block {
		out.Device = p.device(u)
	}
	return out
}

// Leave has a volume unpublished that a pod uses, and ends a SetUp of it that has not succeeded. unmap is
// called first, for what was made of the volume for the pod. Leave waits for the driver, at most as long as
// calls have; after an error the pod still uses the volume.
func (m *Mounts) Leave(ctx context.Context, of Use, unmap func() error) error {
	u := of.use
	k, has := m.book.UsedBy(u.pod)[u]
	if !has {
		return nil
	}
	if m.book.leave(k, u) { // another pod's call may hang
		unstager{m}.forget(k, u)
		return nil
	}
	done, err := m.book.Take(ctx, k)
	if err != nil {
		return err
	}
	defer done()
	if now, _ := m.book.Use(k, u); now.known {
		began, name := time.Now(), pick(u.block, operation.Unmount, operation.Unmap)
		err := m.takeBack(ctx, k, u, unmap)
		if m.did(k, name, began, err); err != nil {
			return fmt.Errorf("%s failed for volume %q of driver %s: %w",
				pick(u.block, "UnmountVolume.TearDown", "UnmapVolume.UnmapPodDevice"), u.name, k.Driver, err)
		}
	}
	unstager{m}.forget(k, u)
	return nil
}

// takeBack undoes what was made of a volume for a pod.
func (m *Mounts) takeBack(ctx context.Context, k Key, u use, unmap func() error) error {
	if err := unmap(); err != nil {
		return err
	}
	if err := m.unpublish(ctx, k, u); err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed: %w", pluginName, err)
	}
	return m.paths.endPublish(u)
}

// leftPrefix tells failures of unpublishing from those of publishing.
const leftPrefix = "unpublish "

func (m *Mounts) unpublish(ctx context.Context, k Key, u use) error {
	target := m.paths.target(u)
	return m.tried(ctx, k, leftPrefix+target, func(ctx context.Context, c csipb.NodeClient) error {
		_, err := c.NodeUnpublishVolume(ctx, &csipb.NodeUnpublishVolumeRequest{
			VolumeId: k.Handle, TargetPath: target,
		})
		if status.Code(err) == codes.NotFound && m.isFree(target) || isFinal(err) && isAbsent(target) {
			return nil
		}
		return err
	})
}

// isAbsent reports whether a path is not there: an operator undid by hand what the driver cannot.
func isAbsent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// isFree reports whether nothing is mounted at a path. Then a driver that does not know the volume, as
// one that was killed before it had recorded it, has nothing left to undo.
func (m *Mounts) isFree(path string) bool {
	mounted, err := m.cfg.Recovery.Origins()
	_, has := mounted[path]
	return err == nil && !has
}

// endPublish removes the record of a published volume.
func (p paths) endPublish(u use) error {
	if u.block {
		return removeEmpty(p.target(u), p.device(u))
	}
	return removeMount(p.target(u))
}

// unstager has volumes unstaged that no pod wants.
type unstager struct{ *Mounts }

// forget ends a use, and has the volume unstaged if it was the last.
func (m unstager) forget(k Key, u use) {
	m.book.Change(k, func(e *entry) {
		delete(e.Users, u)
		delete(e.failed, m.paths.target(u))
		delete(e.failed, leftPrefix+m.paths.target(u))
	})
	m.book.EndUnused(k)
}

// ends says how volumes are unstaged.
func (m unstager) ends() shared.Ends[Key] {
	return shared.Ends[Key]{
		Name:     func(k Key) string { return "volume " + k.Name() },
		TakeBack: m.unstage, Used: m.cfg.Used, Pauses: m.cfg.Pauses,
		Failed: func(ctx context.Context, k Key, err error, pause time.Duration) time.Duration {
			m.book.Change(k, func(e *entry) { e.kept = e.kept.next(err, m.cfg.Pauses) })
			klog.FromContext(ctx).Info("CSI volume could not be unstaged, trying again",
				"volume", k.Name(), "after", pause, "err", err)
			return pause
		},
	}
}

// unstage unstages a volume that no pod wants.
func (m unstager) unstage(ctx context.Context, k Key) error {
	var places []place
	m.book.Change(k, func(e *entry) { places = slices.Collect(maps.Values(e.places)) })
	var errs []error
	for _, p := range places {
		err := m.mayUnstage(p)
		if err == nil {
			err = m.unstageAt(ctx, k, p)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mayUnstage returns why a place must stay that no pod is known to use.
func (m unstager) mayUnstage(p place) error {
	if p.name != "" {
		return nil // a block volume's uses are found by its name
	}
	return m.held()
}

// unstageAt undoes a volume's staging at one place, with its record.
func (m unstager) unstageAt(ctx context.Context, k Key, p place) (err error) {
	began := time.Now()
	defer func() {
		m.did(k, pick(p.name != "", operation.Unstage, operation.UnstageMap), began, err)
	}()
	if _, err := os.Stat(p.path); err == nil {
		unstage := func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
			if !can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
				return nil
			}
			_, err := c.NodeUnstageVolume(ctx, &csipb.NodeUnstageVolumeRequest{
				VolumeId: k.Handle, StagingTargetPath: p.path,
			})
			return err
		}
		if err := m.cfg.Drivers.call(ctx, k.Driver, asking(unstage)); err != nil {
			return fmt.Errorf("%s: attacher.UnmountDevice failed: %w", pluginName, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = m.endStage(k, p)
	if err == nil {
		m.book.Change(k, func(e *entry) { delete(e.failed, p.path) })
	}
	return err
}

// endStage removes the record of a staged volume.
func (m unstager) endStage(k Key, p place) error {
	var err error
	if p.name != "" {
		err = m.paths.removeBlock(p.name)
	} else {
		err = removeMount(p.path)
	}
	if err != nil {
		return err
	}
	m.book.Change(k, func(e *entry) {
		delete(e.places, p.path)
		e.kept = failure{}
	})
	return nil
}

// removeBlock removes the directories of a block volume that no pod has.
func (p paths) removeBlock(name string) error {
	data := p.block(name, "data", dataFile)
	return removeEmpty(p.block(publishDir, name), p.block(stagingDir, name), p.block(name, "dev"), data,
		filepath.Dir(data), p.block(name))
}

// DeviceFile returns the file that the device of a block volume is mounted on for a pod.
func (m *Mounts) DeviceFile(volume string, pod types.UID) string {
	return m.paths.device(use{pod: pod, name: volume, block: true})
}
