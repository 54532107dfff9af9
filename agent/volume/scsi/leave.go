package scsi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/await"
)

// Held is a disk that a pod uses, or is still to give up.
type Held struct {
	Use
	// Kind is the type's name.
	Kind string
	// File is the file of the pod's mount of the device; "": the disk has a file system.
	File string
	key  key
}

// Holds returns the disks of a pod.
func (d *Disks) Holds(pod types.UID) (out []Held) {
	for u, k := range d.book.uses(pod) {
		held := Held{Use: u, Kind: k.kind, key: k}
		if k.block {
			held.File = d.paths.file(k, pod)
		}
		out = append(out, held)
	}
	slices.SortFunc(out, func(a, b Held) int {
		return strings.Compare(a.key.dir+a.Volume, b.key.dir+b.Volume)
	})
	return out
}

// Leave ends a pod's use of a disk. undo is called first, for what was made of the disk for the pod;
// after an error the pod still uses it.
func (d *Disks) Leave(ctx context.Context, h Held, undo func() error) error {
	d.book.change(h.key, func(s *shared) {
		if _, has := s.users[h.Use]; has {
			s.users[h.Use] = state{leaving: true}
		}
	})
	done, err := d.take(ctx, h.key)
	if err != nil {
		return err
	}
	defer done()
	if err := undo(); err != nil {
		return err
	}
	d.book.change(h.key, func(s *shared) { delete(s.users, h.Use) })
	d.endUnused(h.key)
	return nil
}

// endUnused has a disk detached that no pod uses.
func (d *Disks) endUnused(k key) {
	begin, gone := false, false
	d.book.change(k, func(s *shared) {
		gone = len(s.users) == 0 && !s.made
		begin = len(s.users) == 0 && s.made && !s.ending
		s.ending = s.ending || begin
	})
	if begin {
		d.tasks.Go(func(ctx context.Context) { d.end(ctx, k) })
	}
	if gone {
		d.cfg.Used()
	}
}

// end has a disk detached, until it is, or a pod wants it again.
func (d *Disks) end(ctx context.Context, k key) {
	log := klog.FromContext(ctx).WithValues("disk", k.dir, "type", k.kind)
	for times := 0; ctx.Err() == nil; times++ {
		over, err := d.detach(ctx, k)
		if over {
			d.cfg.Used()
			return
		}
		pause := d.cfg.Pauses.After(times)
		if errors.Is(err, errLogin) {
			pause = min(pause, max(look, time.Until(d.loginsEnd())))
		}
		log.Info("Disk could not be detached, trying again", "after", pause, "err", err)
		await.For(ctx, pause)
	}
}

// detach unmounts a disk for the node and detaches it. over: it is done, or a pod wants it.
func (d *Disks) detach(ctx context.Context, k key) (over bool, err error) {
	done, err := d.take(ctx, k)
	if err != nil {
		return false, err
	}
	defer done()
	var disk Disk
	d.book.change(k, func(s *shared) {
		if over = len(s.users) > 0; over {
			s.ending = false
		}
		disk = s.disk
	})
	if over {
		return true, nil
	}
	if err := d.undo(ctx, k, disk); err != nil {
		return false, err
	}
	d.book.change(k, func(s *shared) { s.ending = false })
	return true, nil
}

// undo undoes what SetUp has made for the node.
func (d *Disks) undo(ctx context.Context, k key, disk Disk) error {
	dir := d.paths.dir(k)
	mounted, err := d.cfg.Mounts.Mounted(dir)
	if err != nil {
		return err
	}
	if mounted {
		if err := d.alone(dir); err != nil {
			return err
		}
		if err := d.cfg.Mounts.Unmount(ctx, dir); err != nil {
			return err
		}
	}
	disk = completed(disk, dir)
	turn, err := d.loginsTo(disk)(ctx)
	if err != nil {
		return err
	}
	defer turn()
	mounts, err := d.mountedDevices()
	if err != nil {
		return err
	}
	o := others{disks: d.book.others(k),
		mounted: func(disk string) bool { return isMounted(mounts, disk) }}
	if err := disk.detach(ctx, d.cfg.Host, o); err != nil {
		return err
	}
	if d.book.mayLogIn(k) && time.Until(d.loginsEnd()) > 0 {
		return errLogin
	}
	if err := d.paths.remove(k); err != nil {
		return err
	}
	// Before the turn ends: the next disk of the target must not keep the session for this one.
	d.book.change(k, func(s *shared) { s.made = false })
	return nil
}

// errLogin keeps the directory of a disk, and has it looked at again.
var errLogin = errors.New("an earlier run of the agent may have begun a login to the target: " +
	"a session that comes of it will be ended")

// loginsEnd returns the time after which no login of an earlier run makes a session: iscsid has given
// up.
func (d *Disks) loginsEnd() time.Time { return d.began.Add(commandWait) }

// alone returns an error if the file system that is mounted on dir is mounted elsewhere too.
func (d *Disks) alone(dir string) error {
	all, err := d.cfg.Mounts.List()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(m mount.MountPoint) bool { return m.Path == dir })
	for _, m := range all {
		if at >= 0 && m.Device == all[at].Device && m.Path != dir {
			return fmt.Errorf("the device mount path %s is still mounted at %s", dir, m.Path)
		}
	}
	return nil
}

// mountedDevices returns the names of the block devices that are mounted.
func (d *Disks) mountedDevices() (map[string]bool, error) {
	all, err := d.cfg.Mounts.List()
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, m := range all {
		if !strings.HasPrefix(m.Device, d.cfg.Host.Dev+"/") {
			continue
		}
		name := filepath.Base(m.Device)
		if to, err := filepath.EvalSymlinks(m.Device); err == nil { // of the device mapper
			name = filepath.Base(to)
		}
		out[name] = true
	}
	return out, nil
}

// isMounted reports whether a disk or a partition of it is among the devices.
func isMounted(all map[string]bool, disk string) bool {
	for name := range maps.Keys(all) {
		rest, is := strings.CutPrefix(name, disk)
		if is && strings.Trim(rest, "p0123456789") == "" {
			return true
		}
	}
	return false
}

// Has reports whether the request is for this disk.
func (h Held) Has(r Request) bool { return h.Use == r.Use && h.key == r.key() }
