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
	for u, k := range d.book.UsedBy(pod) {
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
	d.book.Change(h.key, func(e *entry) {
		if _, has := e.Users[h.Use]; has {
			e.Users[h.Use] = true
		}
	})
	done, err := d.book.Take(ctx, h.key)
	if err != nil {
		return err
	}
	defer done()
	if err := undo(); err != nil {
		return err
	}
	d.book.Change(h.key, func(e *entry) { delete(e.Users, h.Use) })
	d.book.EndUnused(h.key)
	return nil
}

// failed tells of a disk that was not detached. A login of an earlier run is looked for often.
func (d *Disks) failed(ctx context.Context, k key, err error, pause time.Duration) time.Duration {
	if errors.Is(err, errLogin) {
		pause = min(pause, max(look, time.Until(d.loginsEnd())))
	}
	klog.FromContext(ctx).Info("Disk could not be detached, trying again", "disk", k.dir,
		"type", k.kind, "after", pause, "err", err)
	return pause
}

// detach undoes what SetUp has made for the node.
func (d *Disks) detach(ctx context.Context, k key) error {
	var disk, known Disk
	d.book.Change(k, func(e *entry) { disk, known = e.disk, e.known })
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
	if i, is := disk.(*ISCSI); is && known != nil && !i.recorded(dir) {
		disk = known
	}
	disk = completed(disk, dir)
	unlock, err := d.loginsTo(disk)(ctx)
	if err != nil {
		return err
	}
	defer unlock()
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
	// Before the lock is given back: the next disk of the target must not keep the session for this one.
	d.book.Change(k, func(e *entry) { e.made = false })
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
