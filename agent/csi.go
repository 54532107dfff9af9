package agent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/needs"
	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/scsi"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// csiDomain is the node's drivers of CSI volumes.
type csiDomain struct {
	*csi.Drivers
	changed *mailbox.Topic // what they say of the node
}

func newCSI(n node) (d csiDomain, err error) {
	d.changed = new(mailbox.Topic)
	d.Drivers, err = csi.New(csi.Config{Changed: d.changed.Publish, Registry: n.registry})
	return d, err
}

// mountDomain is the volumes of the node's pods that CSI drivers make, and the disks that the host
// attaches.
type mountDomain struct {
	*csi.Mounts
	disks  *scsi.Disks
	used   *mailbox.Topic          // the volumes in use, or the CSINode, are others
	waking *mailbox.Box[types.UID] // pods that waited for a driver or an attachment
	// clustered joins the API server and the node; nil: the node is in no cluster.
	clustered *clusteredMounts
}

// storageEnds join the node and its drivers.
type storageEnds struct {
	drivers csiDomain
	known   knownNode
	// limited ends a pod that has waited long for more volumes than the node takes.
	limited func(pod *v1.Pod, message string)
}

// newMounts finds what is mounted. It must be made before the node's status is written, which says
// which volumes are in use.
func newMounts(ctx context.Context, n node, s storageEnds, o *objects.Objects) (
	d mountDomain, err error) {
	root, err := filepath.EvalSymlinks(n.cfg.RootDir)
	if err != nil {
		return d, err
	}
	d.used, d.waking = new(mailbox.Topic), mailbox.New[types.UID]()
	cfg := csi.MountsConfig{Drivers: s.drivers.Drivers, Root: root, Node: n.name, Used: d.used.Publish,
		Wake: d.waking.Put, Done: n.metrics.Mounted,
		Recovery: csi.RecoveryConfig{Lost: func(message string) {
			n.events.OnNode(v1.EventTypeWarning, recordLost, message)
		}}}
	if o != nil {
		d.clustered = newClusteredMounts(n, s, d.used.Publish)
		cfg.Objects, cfg.Attached = o, d.clustered.attached
		cfg.Exhausted = s.drivers.NodeInfo
	}
	d.Mounts = csi.NewMounts(ctx, cfg)
	return d, nil
}

// recordLost is the reason of events and problems of volumes that no record names.
const recordLost = "VolumeRecordLost"

// problems lists the volumes whose records are lost, and those that cannot be unstaged.
func (d mountDomain) problems() (out []complaint.Problem) {
	for reason, messages := range map[string][]string{
		recordLost: d.Amiss(""), volume.ReasonUnmount: d.Stuck("")} {
		for _, message := range messages {
			out = append(out, complaint.Problem{Source: "csi", Name: "volume", Reason: reason, Message: message})
		}
	}
	slices.SortFunc(out, func(a, b complaint.Problem) int { return strings.Compare(a.Message, b.Message) })
	return out
}

// follow has volumes unstaged, and pods looked at whose driver has registered, or whose volume is
// attached. waiting has the pods that are not admitted yet; nil: the node is in no cluster.
func (d mountDomain) follow(drivers csiDomain, waiting *needs.Needs, again func(types.UID)) []part.Part {
	news := mailbox.Subscribe(drivers.changed)
	return append(append(d.clustered.parts(d.Mounts, waiting), d.followDisks()...), []part.Part{
		part.Of("CSI volumes", d.Run),
		part.Each("pods that wait for drivers", d.waking, again),
		part.Of("news of drivers", func(ctx context.Context) error {
			for await.On(ctx, news) {
				d.DriversChanged()
			}
			return nil
		}),
	}...)
}
