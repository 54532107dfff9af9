package scsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/agent/storage/volume/shared"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/keymutex"
)

// Disk is an ISCSI or an FC.
type Disk interface {
	fmt.Stringer
	// Name is the volume's unique name in the status of nodes.
	Name() string

	kind() string // the type's name
	dir() string  // its directory, below the type's
	attach(ctx context.Context, h Host, lock loginLock) (string, error)
	detach(ctx context.Context, h Host, o others) error
}

// Mounts mounts file systems.
type Mounts interface {
	List() ([]mount.MountPoint, error)
	// Mounted reports whether something is mounted on a path. It does not touch it.
	Mounted(path string) (bool, error)
	// Format mounts a device's file system, and makes one if there is none. fstype "" is the default.
	Format(device, path, fstype string, options []string) error
	Unmount(ctx context.Context, path string) error
}

// Config configures New.
type Config struct {
	Root   string // the agent's root directory, without symbolic links
	Mounts Mounts
	Host   Host
	// Attached reports whether the node's status has the volume of that unique name as attached; nil:
	// no controller attaches volumes, and SetUp does not wait for one.
	Attached func(name string) bool
	// Used is called after what InUse returns has changed. It must not block. Optional.
	Used func()
	// Wake has a pod looked at that waits for a volume to be attached. It must not block. Optional.
	Wake func(pod types.UID)
	// Pauses are between attempts to detach a disk; zero: shared.Pauses.
	Pauses await.Pauses
}

// Disks has the disks of the node's pods attached, and detaches those that no pod uses. Its methods
// are safe for concurrent use; those for one pod come one after another.
//
//	nothing -> wanted -> attached -> mounted -> used by pods
//	   ^                                           |
//	   +--- detached <- unmounted <- unused  <-----+   by a goroutine of Run
type Disks struct {
	cfg    Config
	paths  paths
	book   book
	logins keymutex.Mutex[string] // by target: held to log in or out
	began  time.Time
}

// New finds the disks that earlier runs of the agent, or a kubelet, have left.
func New(cfg Config) *Disks {
	if cfg.Used == nil {
		cfg.Used = func() {}
	}
	if cfg.Wake == nil {
		cfg.Wake = func(types.UID) {}
	}
	d := &Disks{cfg: cfg, paths: paths(cfg.Root), began: time.Now()}
	d.book = newBook(shared.Ends[key]{
		Name:     func(k key) string { return "disk " + k.dir },
		TakeBack: d.detach, Failed: d.failed, Used: cfg.Used, Pauses: cfg.Pauses,
	})
	if err := d.book.read(d.paths, cfg.Mounts, cfg.Host); err != nil {
		klog.Background().Error(err, "Not all disks that are attached could be read; the rest is "+
			"left as it is")
	}
	d.book.EndAllUnused()
	return d
}

// Run has disks detached that no pod uses, until ctx ends. Call it once.
func (d *Disks) Run(ctx context.Context) error {
	d.book.Run(ctx)
	return nil
}

// InUse returns the unique names of the volumes that pods use, or that are still attached, ascending.
func (d *Disks) InUse() []string { return d.book.names() }

// AttachedChanged wakes the pods whose volumes are attached now.
func (d *Disks) AttachedChanged() {
	if d.cfg.Attached == nil {
		return
	}
	for _, pod := range d.book.waiting(d.cfg.Attached) {
		d.cfg.Wake(pod)
	}
}

// Use is a pod's use of a disk.
type Use struct {
	Pod types.UID
	// Volume is the volume's name in the pod's directory; "": the pod has the disk as a device.
	Volume string
}

// PodUID returns the pod.
func (u Use) PodUID() types.UID { return u.Pod }

// Request is a disk that a pod is to have.
type Request struct {
	Use
	Disk
	FSType  string
	Options []string // mount options
}

func (r Request) key() key { return key{r.kind(), r.dir(), r.Volume == ""} }

// Want notes that a pod is to have a disk, which is in use from then on.
func (d *Disks) Want(r Request) {
	if d.book.want(r.key(), r.Disk, r.Use) {
		d.cfg.Used()
	}
}

// errGone is the error of a disk that is no longer wanted.
var errGone = errors.New("the pod no longer wants the volume")

// SetUp attaches the disk that was wanted, mounts its file system for the node, and calls then. at is
// where it is mounted; of a block volume it is the device, and file where the pod's mount of it goes.
// SetUp holds the disk's lock meanwhile.
func (d *Disks) SetUp(ctx context.Context, r Request, then func(at, file string) error) error {
	done, err := d.book.Take(ctx, r.key())
	if err != nil {
		return err
	}
	defer done()
	if leaves, has := d.book.Use(r.key(), r.Use); !has || bool(leaves) {
		return errGone
	}
	if d.cfg.Attached != nil && !d.cfg.Attached(r.Name()) {
		return &operation.Error{Part: operation.WaitForAttach, Err: fmt.Errorf("volume %s is not attached according to the "+
			"node's status: waiting for the attach-detach controller of kube-controller-manager",
			r.Name())}
	}
	dir := d.paths.dir(r.key())
	if r.Volume != "" {
		if mounted, err := d.cfg.Mounts.Mounted(dir); err != nil {
			return &operation.Error{Part: operation.MountDevice, Err: err}
		} else if mounted {
			return then(dir, "")
		}
	}
	device, err := d.attach(ctx, r, dir)
	if err != nil {
		return &operation.Error{Part: operation.WaitForAttach, Err: err}
	}
	if r.Volume == "" {
		return then(device, d.paths.file(r.key(), r.Pod))
	}
	if err := d.cfg.Mounts.Format(device, dir, r.FSType, r.Options); err != nil {
		return &operation.Error{Part: operation.MountDevice, Err: fmt.Errorf("mount the file system on %v, %s: %w", r.Disk,
			device, err)}
	}
	return then(dir, "")
}

// attach writes the disk's record, and attaches it.
func (d *Disks) attach(ctx context.Context, r Request, dir string) (device string, err error) {
	if err := d.paths.begin(r.Disk, dir); err != nil {
		return "", err
	}
	d.book.made(r.key(), r.Disk)
	name, err := r.attach(ctx, d.cfg.Host, d.loginsTo(r.Disk))
	if err != nil {
		return "", err
	}
	return filepath.Join(d.cfg.Host.Dev, name), nil
}

// loginsTo returns the lock for logins to the disk's target.
func (d *Disks) loginsTo(of Disk) loginLock {
	target := ""
	if i, is := of.(*ISCSI); is {
		target = i.iqn
	}
	return func(ctx context.Context) (func(), error) {
		done, err := d.logins.Lock(ctx, target)
		if err != nil {
			return nil, fmt.Errorf("target %s is busy: %w", target, err)
		}
		return done, nil
	}
}
