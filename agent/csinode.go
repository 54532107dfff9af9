package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster/attachments"
	"github.com/numalet/numalet/agent/cluster/csinodes"
	"github.com/numalet/numalet/agent/cluster/needs"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// clusteredMounts tells the API server of the node's CSI drivers, and has the node know what the API
// server says of their volumes.
type clusteredMounts struct {
	object      *csinodes.Writer
	attachments *attachments.Attachments
	arrived     *mailbox.Box[csi.Key] // volumes to ask about again
	refused     error                 // why no volume is ever attached
	node        mailbox.Source        // the node's object is another
	get         func() *v1.Node       // the node's object; nil: it is not known
}

// errAttaches: the setting is the kubelet's way without the attach-detach controller. Nodes have no
// right to make VolumeAttachments, so it cannot work for drivers of CSI.
var errAttaches = errors.New("enableControllerAttachDetach is false, and the node has no right to attach " +
	"volumes itself: set it to true, which is the default, so that the controller attaches them")

// newClusteredMounts makes what joins drivers and the API server. changed is called when the CSINode is
// there.
func newClusteredMounts(n node, s storageEnds, changed func()) *clusteredMounts {
	d := &clusteredMounts{arrived: mailbox.New[csi.Key](), node: s.known.Updates(), get: s.known.Get}
	if !*n.cfg.Kubelet.EnableControllerAttachDetach {
		d.refused = errAttaches
	}
	cfg := csinodes.Config{
		Client: n.kube.Heartbeats(), Node: s.known.Get, Drivers: s.drivers.Nodes,
		Changed: mailbox.Subscribe(s.drivers.changed, s.known.Presence(), n.kube.Restored()),
		Ready:   changed, Tell: n.events.OnNode, Ask: s.drivers.NodeInfo,
		Left:      s.drivers.Left,
		HasSocket: func(driver string) bool { return hasSocket(n.cfg.RootDir, driver) },
	}
	if n.asksHealth() {
		cfg.Health = s.drivers.StorageHealth
	}
	d.object = csinodes.New(cfg)
	d.attachments = attachments.New(attachments.Config{
		Client: n.kube.Main(), Name: n.name, Node: s.known.Get,
		Changed: mailbox.Subscribe(s.known.Updates()),
		Wake:    d.arrived.Put,
	})
	return d
}

// hasSocket reports whether a driver has the socket in the plugin registry that Kubernetes'
// node-driver-registrar makes.
func hasSocket(root, driver string) bool {
	_, err := os.Lstat(filepath.Join(root, watcher.Registry, driver+"-reg.sock"))
	return err == nil
}

// attached returns what the attacher says of a volume that is attached.
func (d *clusteredMounts) attached(ctx context.Context, of csi.Attachment) (
	publishContext map[string]string, ok bool, err error) {
	if d.refused != nil {
		return nil, false, d.refused
	}
	return d.attachments.Attached(ctx, of)
}

// parts keep the CSINode, and have pods looked at whose volumes may be attached now; waiting has those
// that are not admitted yet.
func (d *clusteredMounts) parts(m *csi.Mounts, waiting *needs.Needs) []part.Part {
	if d == nil {
		return nil
	}
	updates := mailbox.Subscribe(d.node)
	return []part.Part{part.Of("CSINode", d.object.Run), part.Of("attachments of volumes", d.attachments.Run),
		part.Of("volumes without records", func(ctx context.Context) error {
			for recognize(m, d.get()); await.On(ctx, updates); {
				recognize(m, d.get())
			}
			return nil
		}),
		part.Each("attached volumes", d.arrived, func(k csi.Key) {
			m.AttachmentChanged(k)
			waiting.AttachmentChanged(k)
		})}
}

// recognize has volumes named whose records are lost, by what the node's status says.
func recognize(m *csi.Mounts, node *v1.Node) {
	if node == nil {
		return
	}
	var names []string
	for _, is := range node.Status.VolumesAttached {
		names = append(names, string(is.Name))
	}
	for _, name := range node.Status.VolumesInUse {
		names = append(names, string(name))
	}
	m.Recognize(names)
}

// describe adds to the node's facts which volumes are in use, and whether it has a CSINode: until then
// nobody may count on its drivers.
func (d mountDomain) describe(f *nodestatus.Facts) {
	f.VolumesInUse, f.MayBeInUse = nil, func(name v1.UniqueVolumeName) bool {
		return d.MayHave(string(name))
	}
	for _, name := range append(d.InUse(), d.disks.InUse()...) {
		f.VolumesInUse = append(f.VolumesInUse, v1.UniqueVolumeName(name))
	}
	if d.clustered == nil {
		return
	}
	if why := d.clustered.object.Unready(); why != "" {
		f.NotReady = append(slices.Clip(f.NotReady), why)
	}
}
