package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
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
	for _, u := range m.book.uses(pod) {
		one := Use{use: u, Name: u.name, Target: m.paths.target(u)}
		if u.block {
			one.Device = m.paths.device(u)
		}
		out = append(out, one)
	}
	return out
}

// Leave has a volume unpublished that a pod uses. unmap is called first, for what was made of the
// volume for the pod. Leave waits for the driver, at most as long as calls have; after an error the
// pod still uses the volume.
func (m *Mounts) Leave(ctx context.Context, of Use, unmap func() error) error {
	u := of.use
	k, has := m.book.at(u)
	if !has {
		return nil
	}
	m.book.change(k, func(s *shared) {
		if now, has := s.users[u]; has {
			s.users[u] = state{known: now.known, leaving: true}
		}
	})
	done, err := m.book.take(ctx, k)
	if err != nil {
		return err
	}
	defer done()
	known := false
	m.book.change(k, func(s *shared) { known = s.users[u].known })
	if known {
		began, name := time.Now(), pick(u.block, OperationUnmount, OperationUnmap)
		err := m.takeBack(ctx, k, u, unmap)
		if m.did(k, name, began, err); err != nil {
			return err
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
		return err
	})
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
	m.book.change(k, func(s *shared) {
		delete(s.users, u)
		delete(s.failed, m.paths.target(u))
		delete(s.failed, leftPrefix+m.paths.target(u))
	})
	m.endUnused(k)
}

// endUnused has a volume unstaged if no pod wants it.
func (m unstager) endUnused(k Key) {
	begin, gone := false, false
	m.book.change(k, func(s *shared) {
		gone = len(s.users)+len(s.places) == 0
		begin = len(s.users) == 0 && len(s.places) > 0 && !s.ending
		s.ending = s.ending || begin
	})
	if begin {
		m.tasks.Go(func(ctx context.Context) { m.end(ctx, k) })
	}
	if gone {
		m.cfg.Used()
	}
}

// end has a volume unstaged, until it is, or a pod wants it again.
func (m unstager) end(ctx context.Context, k Key) {
	log := klog.FromContext(ctx).WithValues("volume", k.Name())
	for times := 0; ctx.Err() == nil; times++ {
		news := m.book.changed()
		over, err := m.unstage(ctx, k)
		if over {
			m.cfg.Used()
			return
		}
		pause := m.cfg.Pauses.After(times)
		log.Info("CSI volume could not be unstaged, trying again", "after", pause, "err", err)
		waiting, cancel := context.WithTimeout(ctx, pause)
		await.On(waiting, news)
		cancel()
	}
}

// unstage unstages a volume. over: it is done, or a pod wants the volume.
func (m unstager) unstage(ctx context.Context, k Key) (over bool, err error) {
	done, err := m.book.take(ctx, k)
	if err != nil {
		return false, err
	}
	defer done()
	var places []place
	m.book.change(k, func(s *shared) {
		if over = len(s.users) > 0; over {
			s.ending = false
			return
		}
		for _, p := range s.places {
			places = append(places, p)
		}
	})
	if over {
		return true, nil
	}
	var errs []error
	for _, p := range places {
		if err := m.unstageAt(ctx, k, p); err != nil {
			errs = append(errs, err)
		}
	}
	m.book.change(k, func(s *shared) {
		over = len(s.users) > 0 || len(s.places) == 0
		s.ending = !over
	})
	return over, errors.Join(errs...)
}

// unstageAt undoes a volume's staging at one place, with its record.
func (m unstager) unstageAt(ctx context.Context, k Key, p place) (err error) {
	began := time.Now()
	defer func() {
		m.did(k, pick(p.name != "", OperationUnstage, OperationUnstageMap), began, err)
	}()
	if _, err := os.Stat(p.path); err == nil {
		err := m.cfg.Drivers.call(ctx, k.Driver, func(ctx context.Context, c csipb.NodeClient) error {
			can, err := capabilities(ctx, c)
			if err != nil || !can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
				return err
			}
			_, err = c.NodeUnstageVolume(ctx, &csipb.NodeUnstageVolumeRequest{
				VolumeId: k.Handle, StagingTargetPath: p.path,
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: attacher.UnmountDevice failed: %w", pluginName, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.endStage(k, p)
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
	m.book.change(k, func(s *shared) {
		delete(s.places, p.path)
		delete(s.failed, p.path)
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
