package scsi

import (
	"errors"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
)

// Recall notes that a pod has a disk, as its claim or its spec says. linked: the pod's directory has a
// link to the disk, which it has as a device. Lost records of the disk are written again.
func (d *Disks) Recall(r Request, linked bool) {
	k := r.key()
	found, lost := false, false
	d.book.Change(k, func(e *entry) {
		if !e.made || !e.found || e.known != nil {
			return
		}
		e.known, found = r.Disk, true
		if _, used := e.Users[r.Use]; linked && !used {
			e.Users[r.Use], lost = false, true
		}
	})
	if !found {
		return // its records are written, or a pod has been asked about before
	}
	var errs []error
	if lost {
		errs = append(errs, files.Touch(d.paths.file(k, r.Pod), dirMode))
	}
	wrote, err := d.rewrite(k, r.Disk)
	if errs = append(errs, err); lost || wrote {
		klog.Background().Info("A record of a disk was lost, and is known again from the pod that has it",
			"disk", k.dir, "type", k.kind, "podUID", r.Pod, "err", errors.Join(errs...))
	}
}

// rewrite writes the disk's record again if it is lost, unless the disk is mounted over it.
func (d *Disks) rewrite(k key, disk Disk) (wrote bool, err error) {
	i, is := disk.(*ISCSI)
	if !is {
		return false, nil
	}
	dir := d.paths.dir(k)
	if mounted, err := d.cfg.Mounts.Mounted(dir); err != nil || mounted || i.recorded(dir) {
		return false, err
	}
	if err := i.write(dir); err != nil {
		return false, err
	}
	return true, nil
}
