package stats

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/await"
)

// DisksConfig says what to measure on disks.
type DisksConfig struct {
	Root string
	// Pods returns what pods use, as it was last measured; Disks does not measure it.
	Pods func() map[types.UID]localstorage.Pod
	// Rooms returns the volumes of pods that others serve and whose room is known; nil: they are not
	// measured. The map must not be changed.
	Rooms func() map[types.UID][]volume.PodRoom
}

// filesystemsPeriod is the time between two cheap queries of the room on filesystems.
const filesystemsPeriod = 10 * time.Second

// Usage holds what was measured on disks. It is immutable.
type Usage struct {
	Root, Images, Containers *statsapi.FsStats // nil: not known
	Pods                     map[types.UID]localstorage.Pod
	Rooms                    map[types.UID][]volume.PodRoom // of pods
	// Where the runtime has Images and Containers.
	imagesAt, containersAt string
}

// Disks queries filesystems in the background after a Get, at most once per filesystemsPeriod.
type Disks struct {
	cfg    Config
	asked  chan struct{} // of capacity 1
	mu     sync.Mutex
	usage  Usage
	looked time.Time // time of the last query
}

func newDisks(c Config) *Disks { return &Disks{cfg: c, asked: make(chan struct{}, 1)} }

// Get returns the last measurement, and has it repeated if it is old.
func (d *Disks) Get() Usage {
	await.Wake(d.asked)
	u := d.last()
	u.Pods = d.cfg.Disks.Pods()
	if d.cfg.Disks.Rooms != nil {
		u.Rooms = d.cfg.Disks.Rooms()
	}
	return u
}

func (d *Disks) last() Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usage
}

// run queries after a Get if the period has passed.
func (d *Disks) run(ctx context.Context) error {
	for await.On(ctx, d.asked) {
		d.round(ctx)
	}
	return nil
}

func (d *Disks) round(ctx context.Context) {
	if now := time.Now(); now.Sub(d.looked) >= filesystemsPeriod {
		d.looked = now
		u := d.last()
		d.filesystems(ctx, &u)
		d.put(u)
	}
}

func (d *Disks) put(u Usage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.usage = u
}

// filesystems keeps the last values of filesystems that cannot be queried.
func (d *Disks) filesystems(ctx context.Context, u *Usage) {
	if root, err := filesystem(d.cfg.Disks.Root); err == nil {
		u.Root = root
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	images, containers, err := d.cfg.Runtime.ImageFilesystems(ctx)
	if err != nil {
		return
	}
	for _, one := range []struct {
		from *runtimeapi.FilesystemUsage
		to   **statsapi.FsStats
		at   *string
	}{{images, &u.Images, &u.imagesAt}, {containers, &u.Containers, &u.containersAt}} {
		*one.at = one.from.GetFsId().GetMountpoint()
		if s, err := filesystem(*one.at); err == nil {
			s.UsedBytes = value(one.from.GetUsedBytes())
			s.InodesUsed = value(one.from.GetInodesUsed())
			*one.to = s
		}
	}
}

// filesystem describes the filesystem of path.
func filesystem(path string) (*statsapi.FsStats, error) {
	room, err := diskusage.Filesystem(path)
	if err != nil {
		return nil, err
	}
	return fsStats(room, room.Usage(), time.Now()), nil
}

func fsStats(room diskusage.Room, used diskusage.Usage, at time.Time) *statsapi.FsStats {
	return &statsapi.FsStats{Time: metav1.NewTime(at), CapacityBytes: &room.Capacity,
		AvailableBytes: &room.Available, Inodes: &room.Inodes, InodesFree: &room.InodesFree,
		UsedBytes: &used.Bytes, InodesUsed: &used.Inodes}
}
