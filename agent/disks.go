package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster/attachments"
	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// newDisks says what disks of iSCSI and Fibre Channel need. In a cluster, the attach-detach controller
// decides which node has them: it writes that into the node's status, and attaches nothing itself.
func newDisks(n node, known knownNode, m mountDomain, o *objects.Objects) volume.DisksConfig {
	c := volume.DisksConfig{Used: m.used.Publish, Wake: m.waking.Put}
	if o == nil {
		return c
	}
	c.Secret = o.DriverSecret
	if *n.cfg.Kubelet.EnableControllerAttachDetach {
		c.Attached = func(name string) bool {
			return attachments.Agreed(known.Get(), v1.UniqueVolumeName(name), true)
		}
	}
	return c
}

// followDisks has disks detached, and pods looked at whose disks are attached now.
func (d mountDomain) followDisks() []part.Part {
	parts := []part.Part{part.Of("disks that no pod uses", d.disks.Run)}
	if d.clustered == nil {
		return parts
	}
	changed := mailbox.Subscribe(d.clustered.node)
	return append(parts, part.Of("attached disks", func(ctx context.Context) error {
		for await.On(ctx, changed) {
			d.disks.AttachedChanged()
		}
		return nil
	}))
}
