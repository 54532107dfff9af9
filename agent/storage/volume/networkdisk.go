package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume/scsi"
	"github.com/numalet/numalet/internal/files"
)

// DisksConfig says what disks of iSCSI and Fibre Channel need.
type DisksConfig struct {
	// Host is the node with its commands; zero: the host that the agent runs on.
	Host scsi.Host
	// Attached, Used and Wake are as in scsi.Config.
	Attached func(name string) bool
	Used     func()
	Wake     func(pod types.UID)
	// Secret reads a secret that a volume names; nil: there is no API server.
	Secret func(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// hostDisks has the host attach disks of iSCSI and Fibre Channel, and makes volumes of them.
type hostDisks struct {
	*node
	mapped mapped
	scsi   *scsi.Disks
}

func newHostDisks(n *node, d *onDevices, m mapped) hostDisks {
	c := n.cfg.Disks
	if c.Host.Run == nil {
		c.Host = scsi.TheHost()
	}
	return hostDisks{n, m, scsi.New(scsi.Config{Root: n.root, Mounts: deviceMounts{d}, Host: c.Host,
		Attached: c.Attached, Used: c.Used, Wake: c.Wake})}
}

// Disks returns the disks of iSCSI and Fibre Channel of the node.
func (v *Volumes) Disks() *scsi.Disks { return v.makers.disks.scsi }

// deviceMounts mounts file systems on devices.
type deviceMounts struct{ *onDevices }

func (d deviceMounts) List() ([]mount.MountPoint, error) {
	all, err := d.mounter.List()
	for i := range all {
		all[i].Path = files.MountPath(all[i].Path)
	}
	return all, err
}

func (d deviceMounts) Mounted(path string) (bool, error) { return d.isMounted(path) }

func (d deviceMounts) Format(device, path, fstype string, options []string) error {
	return d.format(device, path, fstype, options)
}

func (d deviceMounts) Unmount(ctx context.Context, path string) error { return d.unmount(ctx, path) }

// networkDisk is the disk that a volume names, with the type of its file system.
type networkDisk struct {
	scsi.Disk
	fstype string
}

// networkType is a type of disks that the host attaches.
type networkType struct {
	// request returns the disk that a volume names.
	request func(ctx context.Context, c DisksConfig, t target) (networkDisk, error)
	// known returns that disk without the secrets with which the node logs in.
	known func(u used) (scsi.Disk, error)
}

// networkDisks completes a type of volumes that are disks which the host attaches. The file system on a
// disk is mounted once for the node; pods get mounts of that.
func networkDisks(p plugin, disks networkType) plugin {
	p.from, p.relabel, p.recall = inPods|byPVCs, true, disks.recall
	name := p.name
	p.held = &held{
		release: func(ctx context.Context, m *makers, pod types.UID) error {
			return m.disks.leaveDisks(ctx, pod, func(h scsi.Held) bool { return h.Kind == name })
		},
		leave: func(ctx context.Context, m *makers, pod types.UID, volume string) error {
			return m.disks.leaveDisks(ctx, pod, func(h scsi.Held) bool {
				return h.Kind == name && h.Volume == volume
			})
		},
	}
	p.setUp = func(ctx context.Context, m *makers, t target) (again time.Time, err error) {
		of, err := disks.request(ctx, m.cfg.Disks, t)
		if err != nil {
			return again, err
		}
		return again, m.disks.setUpDisk(ctx, t, of)
	}
	return p
}

// networkBlocks does the same for disks that containers have as devices.
func networkBlocks(p plugin, disks networkType) plugin {
	p.from, p.block, p.recall = byPVCs, true, disks.recall
	p.path = func(used) string { return "" }
	p.setUp = func(ctx context.Context, m *makers, t target) (again time.Time, err error) {
		of, err := disks.request(ctx, m.cfg.Disks, t)
		if err != nil {
			return again, err
		}
		return again, m.disks.setUpDevice(ctx, t, of)
	}
	return p
}

// recall tells what disk a pod has.
func (n networkType) recall(m *makers, _ *v1.Pod, pod types.UID, u used, _ string) {
	disk, err := n.known(u)
	podDir, dirErr := m.podDir(pod)
	if err != nil || dirErr != nil {
		return
	}
	r := scsi.Request{Use: scsi.Use{Pod: pod}, Disk: disk}
	at := u.place().device(podDir)
	if !u.plugin.block {
		r.Volume, at = u.place().name, u.place().in(podDir)
	}
	_, err = os.Lstat(at)
	m.disks.scsi.Recall(r, u.plugin.block && err == nil)
}

// setUpDisk has the disk attached and mounted, and mounts it for the pod.
func (d hostDisks) setUpDisk(ctx context.Context, t target, of networkDisk) error {
	r := scsi.Request{Use: scsi.Use{Pod: t.pod.UID, Volume: t.place().name}, Disk: of.Disk,
		FSType: of.fstype, Options: t.mountOptions()}
	if t.readOnly {
		r.Options = t.mountOptions("ro")
	}
	own := t // the file system has the SELinux label, and the kernel none for a mount of it
	own.label = ""
	return d.attachDisk(ctx, t, r, func(at, _ string) error {
		if err := d.mountPod(own, at, "", "bind"); err != nil {
			return err
		}
		if !t.readOnly && d.asRoot {
			if err := d.cfg.giveToGroup(t); err != nil {
				return err
			}
		}
		return t.markReady()
	})
}

// attachDisk has the disk attached, and calls then. The host may take longer than ctx: then a later
// call waits on.
func (d hostDisks) attachDisk(ctx context.Context, t target, r scsi.Request,
	then func(at, file string) error) error {
	d.scsi.Want(r)
	err := d.foreign(ctx, t, func() error {
		return d.scsi.SetUp(context.WithoutCancel(ctx), r, then)
	})
	if t.pv != nil {
		d.cfg.tellMismatch(t, err)
	}
	return err
}

// setUpDevice has the disk attached, and makes it a device of the pod.
func (d hostDisks) setUpDevice(ctx context.Context, t target, of networkDisk) error {
	link := t.place().device(t.podDir)
	r := scsi.Request{Use: scsi.Use{Pod: t.pod.UID}, Disk: of.Disk}
	for _, h := range d.scsi.Holds(t.pod.UID) {
		if h.Has(r) && d.mapped.hasDevice(h.File, link) {
			return nil
		}
	}
	return d.attachDisk(ctx, t, r, func(device, file string) error {
		err := files.Touch(file, dirMode)
		if err == nil {
			device, err = filepath.EvalSymlinks(device)
		}
		if err != nil {
			return err
		}
		return d.mapped.mapDevice(t, device, file, link)
	})
}

// leaveDisks unmounts disks of a pod, and gives them up. It waits for each at most unmountWait; a later
// call waits on.
func (d hostDisks) leaveDisks(ctx context.Context, pod types.UID, which func(scsi.Held) bool) error {
	podDir, err := d.podDir(pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	var errs []error
	for _, h := range d.scsi.Holds(pod) {
		if which(h) {
			errs = append(errs, d.scsi.Leave(ctx, h, func() error { return d.endDisk(ctx, podDir, h) }))
		}
	}
	return errors.Join(errs...)
}

// endDisk removes what was made of a disk for a pod, but for the directory of its mount and the link to
// its device, which go with the pod's directory.
func (d hostDisks) endDisk(ctx context.Context, podDir string, h scsi.Held) error {
	if h.File != "" {
		return errors.Join(d.mapped.free(ctx, h.File), files.Remove(h.File))
	}
	path := place{h.Kind, h.Volume}.in(podDir)
	mounted, err := d.isMounted(path)
	if err != nil || !mounted {
		return err
	}
	return d.unmount(ctx, path)
}
