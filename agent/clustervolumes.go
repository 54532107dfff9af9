package agent

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/housekeeping"
	"github.com/numalet/numalet/agent/kubeapi/objects"
	"github.com/numalet/numalet/agent/needs"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/stats"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// contents are what pods are made of besides their containers.
type contents struct {
	volumes *volume.Volumes
	objects *objects.Objects // nil: the node is in no cluster
	needs   *needs.Needs     // nil: as objects
	// changed has the pods whose objects have changed.
	changed *mailbox.Box[types.UID]
}

// newContents makes what pods are made of; needed is told when pods that wait need something else.
func newContents(n node, p parts, own func() *v1.Node, needed func()) (c contents, err error) {
	c.changed = mailbox.New[types.UID]()
	cfg := volume.Config{
		Root: n.cfg.RootDir, ClusterDomain: n.cfg.Kubelet.ClusterDomain,
		Memory: func() int64 {
			h := n.hardware.Get()
			return h.Allocatable.Memory().Value()
		},
		Facts: func() cri.Facts { return cri.Facts{Allocatable: n.hardware.Get().Allocatable} },
		Done:  p.metrics.Mounted,
		Labels: func() map[string]string {
			if node := own(); node != nil {
				return node.Labels
			}
			return nil // it is not known yet
		},
		Tell: n.events.About,
	}
	if n.kube != nil {
		c.objects = objects.New(objects.Config{
			Client:   n.kube.Main(),
			Strategy: n.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy,
			Changed:  c.changed.Put, Node: own, Tell: n.events.Pod,
			Arrived: func(types.UID) { needed() },
		})
		if err := c.objects.Register(n.registry); err != nil {
			return c, err
		}
		cfg.Objects, cfg.Claims = c.objects, c.objects
	}
	c.volumes, err = volume.New(cfg)
	if c.objects != nil {
		c.needs = needs.New(needs.Config{
			Objects: c.objects.Expected(), Claims: c.volumes, Changed: needed,
		})
	}
	return c, err
}

// parts follow the objects, and make pods look at theirs that changed.
func (c contents) parts(workers *podworker.Workers) []part {
	if c.objects == nil {
		return nil
	}
	return []part{
		{"objects of pods", c.objects.Run},
		{"what pods need", c.needs.Run},
		{"changes of objects", func(ctx context.Context) error {
			for await.On(ctx, c.changed.Wake()) {
				for _, pod := range c.changed.Take() {
					c.volumes.Changed(pod)
					workers.Retry(pod)
				}
			}
			return nil
		}},
	}
}

// measureParts measure the volumes of pods as often as volumeStatsAggPeriod says, negative: never.
// It is a part of its own: file systems of others may take their time.
func measureParts(n node, p parts, l *links, volumes *volume.Volumes) []part {
	period := n.cfg.Kubelet.VolumeStatsAggPeriod.Duration
	if period <= 0 {
		return nil
	}
	return []part{{"room of volumes", housekeeping.New(housekeeping.Task{
		Name: "room of volumes", Period: period, First: time.Second,
		Run: func(ctx context.Context) error {
			found := volumes.Measure(ctx, p.statuses.Active(), p.metrics.VolumeLooked)
			p.metrics.Volumes(found)
			l.claims.put(found)
			return nil
		},
	}).Run}}
}

// claimed is the room of the volumes that claims stand for, by pod, as it was measured last. The zero
// value has none.
type claimed struct {
	now atomic.Pointer[map[types.UID][]stats.ClaimVolume]
}

func (c *claimed) put(found volume.Measured) {
	now := map[types.UID][]stats.ClaimVolume{}
	for _, one := range found.Claims {
		for _, of := range one.Pods {
			now[of.Pod] = append(now[of.Pod], stats.ClaimVolume{Volume: of.Volume,
				Namespace: one.Namespace, Claim: one.Claim, Room: one.Room})
		}
	}
	c.now.Store(&now)
}

func (c *claimed) get() map[types.UID][]stats.ClaimVolume {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return nil
}
