package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/kubeapi/objects"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
)

// contents are what pods are made of besides their containers.
type contents struct {
	volumes *volume.Volumes
	objects *objects.Objects // nil: the node is in no cluster
	// changed has the pods whose objects have changed.
	changed *mailbox.Box[types.UID]
}

func newContents(n node, p parts) (c contents, err error) {
	c.changed = mailbox.New[types.UID]()
	cfg := volume.Config{
		Root: n.cfg.RootDir, ClusterDomain: n.cfg.Kubelet.ClusterDomain,
		Memory: func() int64 {
			h := n.hardware.Get()
			return h.Allocatable.Memory().Value()
		},
		Facts: func() cri.Facts { return cri.Facts{Allocatable: n.hardware.Get().Allocatable} },
		Done:  p.metrics.Mounted, RecursiveReadOnly: recursiveReadOnly(n.runtime.RuntimeStatus),
	}
	if n.kube != nil {
		c.objects = objects.New(objects.Config{
			Client:   n.kube.Main(),
			Strategy: n.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy,
			Changed:  c.changed.Put,
		})
		cfg.Objects = c.objects
	}
	c.volumes, err = volume.New(cfg)
	return c, err
}

// parts follow the objects, and make pods look at theirs that changed.
func (c contents) parts(workers *podworker.Workers) []part {
	if c.objects == nil {
		return nil
	}
	return []part{
		{"objects of pods", c.objects.Run},
		{"changes of objects", func(ctx context.Context) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-c.changed.Wake():
				}
				for _, pod := range c.changed.Take() {
					c.volumes.Changed(pod)
					workers.Retry(pod)
				}
			}
		}},
	}
}

// recursiveReadOnly reports whether the runtime's default handler makes such mounts.
func recursiveReadOnly(s cri.RuntimeStatus) bool {
	for _, h := range s.Handlers {
		if h.Name == "" {
			return h.RecursiveReadOnlyMounts
		}
	}
	return false
}
