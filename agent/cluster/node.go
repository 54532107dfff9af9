package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	stdslices "slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/cluster/csinodes"
	"github.com/numalet/numalet/agent/cluster/needs"
	"github.com/numalet/numalet/agent/cluster/nodes"
	"github.com/numalet/numalet/agent/cluster/nrt"
	"github.com/numalet/numalet/agent/cluster/slices"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// NodeConfig says what the node's object says of the host; a hollow node has no host.
type NodeConfig struct {
	Store     *store.Store
	Pods      *podstatus.Store
	Inventory func() devicemanager.Inventory
	Offered   mailbox.Source // the inventory is another
	// Describe adds what the host says, and Changed tells that it says something else.
	Describe []func(*nodestatus.Facts)
	Changed  []mailbox.Source
	Supports node.Supports
	// Unanswered is called when the API server did not answer.
	Unanswered func()
	Startup    Startup
}

// Startup measures how long the node's start takes; *metrics.Metrics' does.
type Startup interface {
	Registering()
	NodeWritten(ready bool)
}

// Node keeps the node's object, its lease and its NodeResourceTopology at the API server.
type Node struct {
	*nodes.Nodes
	zones *nrt.Writer
}

// NewNode registers the node, as soon as its goroutines run.
func NewNode(c *Cluster, of NodeConfig) *Node {
	n, k := c.node, &c.node.Settings.Kubelet
	fresh := isFresh(n.Settings.RootDir)
	owned, err := nodes.OpenOwned(n.Settings.RootDir, n.Settings.DevicePlugins.Graces.Capacity)
	if err != nil {
		klog.Background().Error(err, "Which resources are ours is not known", "node", n.Name)
	}
	declared := n.Declared(of.Supports)
	kept := nodes.New(nodes.Config{
		Main: c.client.Main(), Heartbeats: c.client.Heartbeats(),
		Identity: c.identity, Known: c.known, Register: *k.RegisterNode, Fresh: fresh,
		OnExistsOnly: n.Enabled("KubeletRegistrationGetOnExistsOnly"),
		Periods: nodes.Periods{
			Update: k.NodeStatusUpdateFrequency.Duration,
			Report: k.NodeStatusReportFrequency.Duration,
			Lease:  time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		},
		Facts: func() nodestatus.Facts {
			of.Startup.Registering() // counts the first time
			f := n.Facts()
			f.DeclaredFeatures, f.Devices = declared, owned.Devices(of.Inventory())
			for _, describe := range of.Describe {
				describe(&f)
			}
			return f
		},
		Changed: mailbox.Subscribe(append(stdslices.Clip(of.Changed), of.Offered, n.Hardware.Changes())...),
		Wrote: func(f nodestatus.Facts) {
			owned.Wrote(f.Devices)
			of.Startup.NodeWritten(len(f.Unready()) == 0)
		},
		Tell: n.Events.OnNode, Unanswered: of.Unanswered, Restored: c.client.Restored().Publish,
		Again: c.restored(),
	})
	return &Node{kept, newZones(c, of)}
}

// Parts lists the goroutines that begin once running pods were adopted.
func (n *Node) Parts() []part.Part {
	return []part.Part{part.Of("node", n.Run), part.Of("NodeResourceTopology", n.zones.Run)}
}

// isFresh reports whether no earlier agent or kubelet has left what it knew of device plugins below the
// root directory.
func isFresh(root string) bool {
	for _, file := range []string{
		filepath.Join(root, recall.FileName), filepath.Join(root, nodes.OwnedFile),
		filepath.Join(placement.DeviceDir(root), checkpoint.FileName),
	} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// newZones tells schedulers what is free on which NUMA node.
func newZones(c *Cluster, of NodeConfig) *nrt.Writer {
	n, pods := c.node, of.Pods
	return nrt.New(nrt.Config{
		Apply: nrt.At(c.client.Main()), Node: c.Object,
		Facts: func() nrt.Facts {
			h := n.Hardware.Get()
			// In the order of a pod's road: what is said of a pod later counts more.
			undecided, all := pods.Undecided(), pods.List()
			f := nrt.Facts{
				Machine: h.Machine, Policy: n.Rules.Policy, Scope: n.Rules.Scope,
				Memory: h.Memory, Inventory: of.Inventory(),
				Held: allocation.HoldingsOf(of.Store.State().List()...), Pods: all,
				Undecided: undecided,
			}
			if h.CPUs != nil {
				f.CPUs, f.Isolated = h.CPUs.Free(cpuset.New()), h.CPUs.Isolated()
			}
			return f
		},
		Changed: mailbox.Subscribe(of.Store.Changes(), pods.Changes(), of.Offered,
			n.Hardware.Changes(), c.known.Presence()),
		Again:  c.restored(),
		Period: n.Settings.Kubelet.NodeStatusReportFrequency.Duration,
	})
}

// Drivers keeps the node's CSINode, and its drivers' slices.
type Drivers struct {
	o         *Contents
	placement *placement.Placement
	storage   *storage.Storage
	needs     *needs.Needs
	csinode   *csinodes.Writer
}

// errAttaches: the setting is the kubelet's way without the attach-detach controller. Nodes have no
// right to make VolumeAttachments, so it cannot work for drivers of CSI.
var errAttaches = errors.New("enableControllerAttachDetach is false, and the node has no right to attach " +
	"volumes itself: set it to true, which is the default, so that the controller attaches them")

// NewDrivers makes what tells the API server of the node's drivers.
func NewDrivers(o *Contents, p *placement.Placement, s *storage.Storage) *Drivers {
	c, n := o.c, o.c.node
	cfg := csinodes.Config{
		Client: c.client.Heartbeats(), Node: c.Object, Drivers: s.Drivers.Nodes,
		Changed: mailbox.Subscribe(s.Drivers.Changed, c.known.Presence(), c.client.Restored()),
		Ready:   s.Used.Publish, Tell: n.Events.OnNode, Ask: s.Drivers.NodeInfo,
		Left:      s.Drivers.Left,
		HasSocket: func(driver string) bool { return hasSocket(n.Settings.RootDir, driver) },
	}
	if s.AsksHealth() {
		cfg.Health = s.Drivers.StorageHealth
	}
	return &Drivers{o: o, placement: p, storage: s, csinode: csinodes.New(cfg), needs: needs.New(needs.Config{
		Objects: o.Objects.Expected(), PVCs: s.Volumes, Changed: o.Needed.Publish,
	})}
}

// Needs says what pods that wait need of the API server.
func (d *Drivers) Needs() *needs.Needs { return d.needs }

// hasSocket reports whether a driver has the socket in the plugin registry that Kubernetes'
// node-driver-registrar makes.
func hasSocket(root, driver string) bool {
	_, err := os.Lstat(filepath.Join(root, watcher.Registry, driver+"-reg.sock"))
	return err == nil
}

// Describe keeps the node NotReady until it has a CSINode: its drivers must not be counted on before.
func (d *Drivers) Describe(f *nodestatus.Facts) {
	if why := d.csinode.Unready(); why != "" {
		f.NotReady = append(stdslices.Clip(f.NotReady), why)
	}
}

// Parts lists the goroutines that run from the start. They follow the objects of pods, and have pods looked at
// again whose objects have changed or whose volumes are attached now.
func (d *Drivers) Parts(again func(pod types.UID)) []part.Part {
	o, registered := d.o, func() bool { return d.o.c.Object() != nil }
	parts := []part.Part{
		part.Of("CSINode", d.csinode.Run), part.Of("attachments of volumes", o.attachments.Run),
		part.Each("attached volumes", o.arrived, func(k csi.Key) {
			d.storage.Mounts.AttachmentChanged(k)
			d.needs.AttachmentChanged(k)
		}),
		part.Of("resource slices", func(ctx context.Context) error {
			return o.Slices.Run(ctx, registered, d.placement.Claims.Usable)
		}),
		part.Each("drivers that are gone", d.placement.Drivers.Gone, o.Slices.Gone),
		part.Of("objects of pods", o.Objects.Run), part.Of("what pods need", d.needs.Run),
		part.Each("changes of objects", o.changed, func(pod types.UID) {
			d.storage.Volumes.Changed(pod)
			again(pod)
		}),
	}
	if o.c.node.Hardware.Get().CPUDriver != "" {
		parts = append(parts, d.cpus(registered))
	}
	return parts
}

// cpus publishes the CPUs that claims can have.
func (d *Drivers) cpus(registered func() bool) part.Part {
	n, assigned := d.o.c.node, d.placement.Store
	return part.Of("slices of CPUs", slices.Publisher{
		Client: d.o.c.client.Main(), Node: n.Name, Registered: registered,
		Changed: mailbox.Subscribe(assigned.Changes(), n.Hardware.Changes()),
		Now: func() slices.CPUs {
			h := n.Hardware.Get()
			return slices.CPUs{Machine: h.Machine, All: h.CPUs.Free(cpuset.New()), Step: h.CPUs.Step(),
				Free:   h.CPUs.Free(assigned.State().ByRequests(h.CPUDriver)),
				Mapped: n.Enabled("DRANodeAllocatableResources")}
		},
	}.Run)
}

// InUse adds to the node's facts which volumes are in use.
func InUse(s *storage.Storage) func(*nodestatus.Facts) {
	return func(f *nodestatus.Facts) {
		f.VolumesInUse, f.MayBeInUse = nil, func(name v1.UniqueVolumeName) bool {
			return s.Mounts.MayHave(string(name))
		}
		for _, name := range s.InUse() {
			f.VolumesInUse = append(f.VolumesInUse, v1.UniqueVolumeName(name))
		}
	}
}
