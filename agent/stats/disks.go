package stats

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/stats/diskusage"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// DisksConfig says what to measure on disks, and how often.
type DisksConfig struct {
	Root, LogsDir string
	// Volumes is the time between two walks through directories, volumeStatsAggPeriod; directories are
	// never walked if it is not positive.
	Volumes time.Duration
	// Claims returns the volumes of pods' claims whose room is known; nil: they are not measured. The
	// map must not be changed.
	Claims func() map[types.UID][]ClaimVolume
	// Looked gets the duration of measuring a volume and the method; nil: nobody wants it.
	Looked func(by string, took time.Duration)
}

// filesystemsPeriod is the time between two cheap queries of the room on filesystems.
const filesystemsPeriod = 10 * time.Second

// volumeKinds are the directories of volumes on the node itself: measuring them cannot hang.
var volumeKinds = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret",
	"kubernetes.io~projected", "kubernetes.io~downward-api",
}

// Usage holds what was measured on disks. It is immutable.
type Usage struct {
	Root, Images, Containers *statsapi.FsStats // nil: not known
	Pods                     map[types.UID]PodUsage
	Claims                   map[types.UID][]ClaimVolume // of pods
	// Where the runtime has Images and Containers.
	imagesAt, containersAt string
}

// PodUsage holds what a pod uses on disks beside the writable layers of its containers.
type PodUsage struct {
	Pod     statsapi.PodReference  // zero: nothing was measured yet
	Volumes []statsapi.VolumeStats // ordered by name
	// Local is the total of the volumes on the node's own disk.
	Local diskusage.Usage
	Logs  map[string]*statsapi.FsStats // by container
}

// Disks measures disks in the background from time to time, as long as someone asks.
type Disks struct {
	cfg      Config
	asked    chan struct{} // of capacity 1
	mu       sync.Mutex
	usage    Usage
	looked   time.Time // time of the last query of filesystems
	measured time.Time // time of the last measurement of all pods
}

func newDisks(c Config) *Disks { return &Disks{cfg: c, asked: make(chan struct{}, 1)} }

// Get returns the last measurement, and has it repeated if it is old.
func (d *Disks) Get() Usage {
	await.Wake(d.asked)
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.usage
	if d.cfg.Disks.Claims != nil {
		u.Claims = d.cfg.Disks.Claims()
	}
	return u
}

// run measures when someone asks: a new pod at once, the others if a period has passed.
func (d *Disks) run(ctx context.Context) error {
	for await.On(ctx, d.asked) {
		d.round(ctx)
	}
	return nil
}

func (d *Disks) round(ctx context.Context) {
	now := time.Now()
	d.mu.Lock()
	u := d.usage
	d.mu.Unlock()
	if now.Sub(d.looked) >= filesystemsPeriod {
		d.looked = now
		d.filesystems(ctx, &u)
		d.put(u)
	}
	every := d.cfg.Disks.Volumes
	if every <= 0 {
		return
	}
	var keep map[types.UID]PodUsage
	if now.Sub(d.measured) < every {
		keep = u.Pods
	} else {
		d.measured = now
	}
	u.Pods = d.pods(ctx, keep)
	d.put(u)
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
	return fsStats(room, diskusage.Usage{Bytes: room.Used, Inodes: room.InodesUsed}), nil
}

func fsStats(room diskusage.Room, used diskusage.Usage) *statsapi.FsStats {
	return &statsapi.FsStats{Time: metav1.Now(), CapacityBytes: &room.Capacity,
		AvailableBytes: &room.Available, Inodes: &room.Inodes, InodesFree: &room.InodesFree,
		UsedBytes: &used.Bytes, InodesUsed: &used.Inodes}
}

// pods measures the pods that are not in keep.
func (d *Disks) pods(ctx context.Context, keep map[types.UID]PodUsage) map[types.UID]PodUsage {
	out := map[types.UID]PodUsage{}
	for _, p := range d.cfg.Running() {
		if ctx.Err() != nil {
			break
		}
		if kept, ok := keep[p.UID]; ok {
			out[p.UID] = kept
			continue
		}
		u := PodUsage{Pod: statsapi.PodReference{
			Name: p.Name, Namespace: p.Namespace, UID: string(p.UID),
		}}
		d.volumes(ctx, p.UID, &u)
		u.Logs = d.logs(ctx, p)
		out[p.UID] = u
	}
	return out
}

// volumes leaves out volumes that cannot be measured: they may disappear at any time.
func (d *Disks) volumes(ctx context.Context, uid types.UID, u *PodUsage) {
	all := filepath.Join(d.cfg.Disks.Root, "pods", string(uid), "volumes")
	for _, kind := range volumeKinds {
		entries, err := os.ReadDir(filepath.Join(all, kind))
		if err != nil { // the pod has none of this kind
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(all, kind, e.Name())
			began := time.Now()
			room, err := diskusage.Filesystem(dir)
			if err != nil {
				continue
			}
			used, err := diskusage.Of(ctx, dir)
			if err != nil {
				continue
			}
			if d.cfg.Disks.Looked != nil {
				d.cfg.Disks.Looked("du", time.Since(began))
			}
			u.Volumes = append(u.Volumes,
				statsapi.VolumeStats{Name: e.Name(), FsStats: *fsStats(room, used)})
			if !room.Memory {
				u.Local.Bytes += used.Bytes
				u.Local.Inodes += used.Inodes
			}
		}
	}
	slices.SortFunc(u.Volumes, func(a, b statsapi.VolumeStats) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// logs measures the directories of the containers' logs, by container.
func (d *Disks) logs(ctx context.Context, p cri.Pod) map[string]*statsapi.FsStats {
	dir := cri.PodLogDir(d.cfg.Disks.LogsDir, p.Reference())
	room, err := diskusage.Filesystem(dir)
	if err != nil { // nothing was logged yet
		return nil
	}
	out := map[string]*statsapi.FsStats{}
	for _, c := range p.Containers {
		if out[c.Name] != nil {
			continue
		}
		used, err := diskusage.Of(ctx, filepath.Join(dir, c.Name))
		if err == nil {
			out[c.Name] = fsStats(room, used)
		}
	}
	return out
}
