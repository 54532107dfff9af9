package agent

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/needs"
	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage/localstorage/quota"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// contentDomain has what pods need besides their containers.
type contentDomain struct {
	volumes *volume.Volumes
	mounts  mountDomain
	claims  claimDomain
	objects *objects.Objects        // nil: the node is in no cluster
	needs   *needs.Needs            // nil: as objects
	needed  *mailbox.Topic          // pods that wait need something else
	changed *mailbox.Box[types.UID] // pods whose objects changed
	room    *atomic.Pointer[rooms]  // nil inside: not measured yet
}

// rooms is the room of the volumes that others serve, by pod.
type rooms map[types.UID][]stats.VolumeRoom

// newContents makes what pods are made of, beside the claims.
func newContents(ctx context.Context, n node, s storageEnds, claims claimDomain) (
	c contentDomain, err error) {
	c = contentDomain{claims: claims, needed: new(mailbox.Topic), changed: mailbox.New[types.UID](),
		room: new(atomic.Pointer[rooms])}
	cfg := volume.Config{
		Root: n.cfg.RootDir, ClusterDomain: n.cfg.Kubelet.ClusterDomain,
		Enabled: n.enabled,
		Facts:   func() cri.Facts { return cri.Facts{Allocatable: n.hardware.Get().Allocatable} },
		Labels: func() map[string]string {
			if node := s.known.object(); node != nil {
				return node.Labels
			}
			return nil // they are not known yet
		},
		Ends: volume.Ends{Done: n.metrics.Mounted, Tell: n.events.About, Limit: s.limited},
	}
	if n.countsProjects() {
		cfg.Count = quota.New().Assign
	}
	cfg.MounterPath = n.cfg.MounterPath
	if n.kube != nil {
		c.objects = objects.New(objects.Config{
			Client:   n.kube.Main(),
			Strategy: n.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy,
			Changed:  c.changed.Put, Node: s.known.object, Tell: n.events.Pod,
			Arrived: func(types.UID) { c.needed.Publish() },
		})
		if err := c.objects.Register(n.registry); err != nil {
			return c, err
		}
		cfg.Objects, cfg.Claims = c.objects, c.objects
	}
	if c.mounts, err = newMounts(ctx, n, s, c.objects); err != nil {
		return c, err
	}
	cfg.CSI, cfg.Disks = c.mounts.Mounts, newDisks(n, s.known, c.mounts, c.objects)
	if cfg.SELinux, err = selinux.New(selinux.ThisHost(), n.enabled, n.registry); err != nil {
		return c, err
	}
	if c.volumes, err = volume.New(cfg); err != nil {
		return c, err
	}
	c.mounts.disks = c.volumes.Disks()
	if c.objects != nil {
		c.needs = needs.New(needs.Config{
			Objects: c.objects.Expected(), Claims: c.volumes, Changed: c.needed.Publish,
		})
	}
	return c, nil
}

// countsProjects reports whether the kernel is to count what is in volumes.
func (n node) countsProjects() bool {
	return n.cfg.Gates.Enabled("LocalStorageCapacityIsolationFSQuotaMonitoring")
}

// follow follows the objects, and makes workers look at pods whose objects changed.
func (c contentDomain) follow(n node, workers *podworker.Workers, drivers csiDomain,
	e claimEnds) []part.Part {
	mounts := c.mounts.follow(drivers, c.needs, workers.Retry)
	if c.objects == nil {
		return mounts
	}
	return append(append(mounts, c.claims.follow(n, e)...),
		part.Of("objects of pods", c.objects.Run), part.Of("what pods need", c.needs.Run),
		part.Each("changes of objects", c.changed, func(pod types.UID) {
			c.volumes.Changed(pod)
			workers.Retry(pod)
		}))
}

// measure measures the volumes of pods every volumeStatsAggPeriod; if that is negative, never. It
// has a goroutine of its own, since file systems of others may take their time.
func (c contentDomain) measure(n node, pods *podstatus.Store) []part.Part {
	period := n.cfg.Kubelet.VolumeStatsAggPeriod.Duration
	if period <= 0 {
		return nil
	}
	return []part.Part{part.Chore(housekeeping.Task{
		Name: "room of volumes", Period: period, First: time.Second,
		Run: func(ctx context.Context) error {
			found := c.volumes.Measure(ctx, pods.Active(), n.metrics.VolumeLooked)
			n.metrics.Volumes(found)
			now := rooms{}
			for _, one := range found.Rooms {
				for _, of := range one.Pods {
					now[of.Pod] = append(now[of.Pod], stats.VolumeRoom{Volume: of.Volume,
						Namespace: one.Namespace, Claim: one.Claim, Room: one.Room, At: one.At})
				}
			}
			c.room.Store(&now)
			return nil
		},
	})}
}

// grow has volumes expanded on the node that a controller made larger. Claims of running pods are
// looked at as often as by the kubelet.
func (c contentDomain) grow(n node, pods *podstatus.Store) part.Part {
	return part.Chore(housekeeping.Task{
		Name: "growth of volumes", Period: n.cfg.Kubelet.SyncFrequency.Duration,
		Run: func(ctx context.Context) error { return c.volumes.Grow(ctx, pods.Active()) },
	})
}

// measured returns what measure found last.
func (c contentDomain) measured() map[types.UID][]stats.VolumeRoom {
	if now := c.room.Load(); now != nil {
		return *now
	}
	return nil
}
