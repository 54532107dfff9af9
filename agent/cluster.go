package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/cluster/nodes"
	"github.com/numalet/numalet/agent/cluster/nrt"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// clusterNode is the node's object, and what keeps it at the API server.
type clusterNode struct {
	knownNode
	// reread makes object return what the API server has now.
	reread func(context.Context)
	run    []part.Part
}

// knownNode is the node's object, as others read it.
type knownNode struct {
	*nodes.Known
	made nodes.Identity
	// object returns nil as long as the object is not known. On a standalone node it is made up.
	object func() *v1.Node
}

func newKnownNode(n node) knownNode {
	k := knownNode{Known: nodes.NewKnown(), made: identityOf(n.cfg, n.name)}
	if k.object = k.Get; n.kube == nil {
		object := nodes.Object(k.made)
		k.object = func() *v1.Node { return object }
	}
	return k
}

// nodeEnds provide what the node's object says of the host; a hollow node has no host.
type nodeEnds struct {
	inventory func() devicemanager.Inventory
	offered   mailbox.Source // the inventory is another
	// describe adds what the host says, and changed tells that it says something else.
	describe func(*nodestatus.Facts)
	changed  []mailbox.Source
	supports supports
	// unanswered is called when the API server did not answer.
	unanswered func()
}

// newClusterNode registers the node and keeps its object, lease and NodeResourceTopology.
func newClusterNode(n node, known knownNode, pods *podstatus.Store, e nodeEnds) clusterNode {
	if n.kube == nil {
		return clusterNode{knownNode: known, reread: func(context.Context) {}}
	}
	fresh := isFresh(n.cfg.RootDir)
	owned, err := nodes.OpenOwned(n.cfg.RootDir, n.cfg.DevicePlugins.Graces.Capacity)
	if err != nil {
		klog.Background().Error(err, "Which resources are ours is not known", "node", n.name)
	}
	k, declared := &n.cfg.Kubelet, e.supports.declared(n.cfg)
	kept := nodes.New(nodes.Config{
		Main: n.kube.Main(), Heartbeats: n.kube.Heartbeats(),
		Identity: known.made, Known: known.Known, Register: *k.RegisterNode, Fresh: fresh,
		OnExistsOnly: n.cfg.Gates.Enabled("KubeletRegistrationGetOnExistsOnly"),
		Periods: nodes.Periods{
			Update: k.NodeStatusUpdateFrequency.Duration,
			Report: k.NodeStatusReportFrequency.Duration,
			Lease:  time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		},
		Facts: func() nodestatus.Facts {
			n.metrics.Startup.Registering() // counts the first time
			f := factsOf(n.self)
			f.DeclaredFeatures, f.Devices = declared, owned.Devices(e.inventory())
			e.describe(&f)
			return f
		},
		Changed: mailbox.Subscribe(append(e.changed, e.offered, n.hardware.Changes())...),
		Wrote: func(f nodestatus.Facts) {
			owned.Wrote(f.Devices)
			n.metrics.Startup.NodeWritten(len(f.Unready()) == 0)
		},
		Tell: n.events.OnNode, Unanswered: e.unanswered, Restored: n.kube.Restored().Publish,
		Again: mailbox.Subscribe(n.kube.Restored()),
	})
	n.events.Follow(kept.Node)
	zones := newZones(n, known, pods, e)
	return clusterNode{known, kept.Reread, []part.Part{
		part.Of("node", kept.Run), part.Of("NodeResourceTopology", zones.Run),
	}}
}

// isFresh reports whether no earlier agent or kubelet has left what it knew of device plugins below the
// root directory.
func isFresh(root string) bool {
	for _, file := range []string{
		filepath.Join(root, recall.FileName), filepath.Join(root, nodes.OwnedFile),
		filepath.Join(deviceDir(root), checkpoint.FileName),
	} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func identityOf(cfg *config.Config, name string) nodes.Identity {
	k := &cfg.Kubelet
	return nodes.Identity{
		Name: name, Labels: cfg.Node.Labels, Taints: k.RegisterWithTaints,
		ProviderID: k.ProviderID, External: cfg.Cluster.Provider == "external",
		NodeIP: cfg.ProvidedIP(), Attach: *k.EnableControllerAttachDetach,
	}
}

// factsOf returns what the configuration and the hardware say of the node.
func factsOf(s self) nodestatus.Facts {
	h := s.hardware.Get()
	f := nodestatus.Facts{
		Capacity: h.Capacity, Allocatable: h.Allocatable,
		Placement: nodestatus.Placement{Rules: s.rules},
	}
	if h.CPUs != nil {
		f.Placement.IsolatedCPUs = h.CPUs.Isolated().Size()
	}
	return f
}

// newZones tells schedulers what is free on which NUMA node.
func newZones(n node, own knownNode, pods *podstatus.Store, e nodeEnds) *nrt.Writer {
	return nrt.New(nrt.Config{
		Apply: nrt.At(n.kube.Main()), Node: own.Get,
		Facts: func() nrt.Facts {
			h := n.hardware.Get()
			// In the order of a pod's road: what is said of a pod later counts more.
			undecided, all := pods.Undecided(), pods.List()
			f := nrt.Facts{
				Machine: h.Machine, Policy: n.rules.Policy, Scope: n.rules.Scope,
				Memory: h.Memory, Inventory: e.inventory(),
				Held: allocation.TakenBy(n.store.State().List()...), Pods: all,
				Undecided: undecided,
			}
			if h.CPUs != nil {
				f.CPUs, f.Isolated = h.CPUs.Free(cpuset.New()), h.CPUs.Isolated()
			}
			return f
		},
		Changed: mailbox.Subscribe(n.store.Changes(), pods.Changes(), e.offered,
			n.hardware.Changes(), own.Presence()),
		Again:  mailbox.Subscribe(n.kube.Restored()),
		Period: n.cfg.Kubelet.NodeStatusReportFrequency.Duration,
	})
}
