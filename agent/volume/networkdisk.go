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

	"github.com/numalet/numalet/agent/volume/scsi"
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

func newDisks(v *Volumes) *scsi.Disks {
	c := v.cfg.Disks
	if c.Host.Run == nil {
		c.Host = scsi.TheHost()
	}
	return scsi.New(scsi.Config{Root: v.root, Mounts: deviceMounts{v.devices}, Host: c.Host,
		Attached: c.Attached, Used: c.Used, Wake: c.Wake})
}

// Disks returns the disks of iSCSI and Fibre Channel of the node.
func (v *Volumes) Disks() *scsi.Disks { return v.scsi }

// deviceMounts mounts file systems on devices.
type deviceMounts struct{ *onDevices }

func (d deviceMounts) List() ([]mount.MountPoint, error) {
	all, err := d.mounter.List()
	for i := range all {
		all[i].Path = plainPath(all[i].Path)
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

// networkDisks completes a type of volumes that are disks which the host attaches. The file system on a
// disk is mounted once for the node; pods get mounts of that.
func networkDisks(p plugin, disk func(context.Context, disks, target) (networkDisk, error)) plugin {
	p.from, p.relabel = inPods|byClaims, true
	name := p.name
	p.held = &held{
		release: func(ctx context.Context, v *Volumes, pod types.UID) error {
			return (disks{v}).leaveDisks(ctx, pod, func(h scsi.Held) bool { return h.Kind == name })
		},
		leave: func(ctx context.Context, v *Volumes, pod types.UID, volume string) error {
			return (disks{v}).leaveDisks(ctx, pod, func(h scsi.Held) bool {
				return h.Kind == name && h.Volume == volume
			})
		},
	}
	p.setUp = func(ctx context.Context, v *Volumes, t target) (again time.Time, err error) {
		of, err := disk(ctx, disks{v}, t)
		if err != nil {
			return again, err
		}
		return again, (disks{v}).setUpDisk(ctx, t, of)
	}
	return p
}

// networkBlocks does the same for disks that containers have as devices.
func networkBlocks(p plugin, disk func(context.Context, disks, target) (networkDisk, error)) plugin {
	p.from, p.block = byClaims, true
	p.path = func(used) string { return "" }
	p.setUp = func(ctx context.Context, v *Volumes, t target) (again time.Time, err error) {
		of, err := disk(ctx, disks{v}, t)
		if err != nil {
			return again, err
		}
		return again, (disks{v}).setUpDevice(ctx, t, of)
	}
	return p
}

// setUpDisk has the disk attached and mounted, and mounts it for the pod.
func (v disks) setUpDisk(ctx context.Context, t target, of networkDisk) error {
	options := []string{"bind"}
	r := scsi.Request{Use: scsi.Use{Pod: t.pod.UID, Volume: t.place().name}, Disk: of.Disk,
		FSType: of.fstype, Options: t.mountOptions()}
	if t.readOnly {
		options, r.Options = append(options, "ro"), t.mountOptions("ro")
	}
	own := t.used // the file system has the SELinux label, and the kernel none for a mount of it
	own.label = ""
	return v.attachDisk(ctx, t, r, func(at, _ string) error {
		mounted, err := v.isMounted(t.path())
		if err != nil {
			return err
		}
		if !mounted {
			if err := os.MkdirAll(t.path(), dirMode); err != nil {
				return err
			}
			if err := v.mount(at, t.path(), "", own.mountOptions(options...)); err != nil {
				return err
			}
		}
		if !t.readOnly && v.asRoot {
			if err := v.cfg.giveToGroup(t); err != nil {
				return err
			}
		}
		return t.markReady()
	})
}

// attachDisk has the disk attached, and calls then. The host may take longer than ctx: then a later
// call waits on.
func (v disks) attachDisk(ctx context.Context, t target, r scsi.Request,
	then func(at, file string) error) error {
	v.scsi.Want(r)
	err := v.foreign(ctx, t, func() error {
		return v.scsi.SetUp(context.WithoutCancel(ctx), r, then)
	})
	if t.pv != nil {
		v.cfg.tellMismatch(t, err)
	}
	return err
}

// setUpDevice has the disk attached, and makes it a device of the pod.
func (v disks) setUpDevice(ctx context.Context, t target, of networkDisk) error {
	link := t.place().device(t.podDir)
	r := scsi.Request{Use: scsi.Use{Pod: t.pod.UID}, Disk: of.Disk}
	for _, h := range v.scsi.Holds(t.pod.UID) {
		if h.Has(r) && v.mapped.hasDevice(h.File, link) {
			return nil
		}
	}
	return v.attachDisk(ctx, t, r, func(device, file string) error {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, dirMode)
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			device, err = filepath.EvalSymlinks(device)
		}
		if err != nil {
			return err
		}
		return v.mapped.mapDevice(t, device, file, link)
	})
}

// leaveDisks unmounts disks of a pod, and gives them up. It waits for each at most unmountWait; a later
// call waits on.
func (v disks) leaveDisks(ctx context.Context, pod types.UID, which func(scsi.Held) bool) error {
	podDir, err := v.podDir(pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	var errs []error
	for _, h := range v.scsi.Holds(pod) {
		if which(h) {
			errs = append(errs, v.scsi.Leave(ctx, h, func() error { return v.endDisk(ctx, podDir, h) }))
		}
	}
	return errors.Join(errs...)
}

// endDisk removes what was made of a disk for a pod, but for the directory of its mount and the link to
// its device, which go with the pod's directory.
func (v disks) endDisk(ctx context.Context, podDir string, h scsi.Held) error {
	if h.File != "" {
		return errors.Join(v.mapped.free(ctx, h.File), files.Remove(h.File))
	}
	path := place{h.Kind, h.Volume}.in(podDir)
	mounted, err := v.isMounted(path)
	if err != nil || !mounted {
		return err
	}
	return v.unmount(ctx, path)
}
