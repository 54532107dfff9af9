package agent

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/agent/serving/metrics"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology"
)

// HollowKind has what hollow nodes of one configuration share: their machine, and metrics that
// nobody reads.
type HollowKind struct {
	self
	metrics *metrics.Metrics
}

// NewHollowKind reads the configuration's machine. Its host's name and addresses play no part.
func NewHollowKind(cfg *config.Config) (k HollowKind, err error) {
	own := *cfg
	own.Node.HostnameOverride = "node"
	if k.self, err = identify(&own); err != nil {
		return k, err
	}
	k.metrics, err = newMetrics(k.self, nil)
	return k, err
}

// Machine returns the machine of every such node.
func (k HollowKind) Machine() *topology.Machine { return k.hardware.Get().Machine }

// Rules returns the rules of placement of every such node.
func (k HollowKind) Rules() topology.Rules { return k.rules }

// HollowConfig has what one hollow node does not share. All fields are required.
type HollowConfig struct {
	Name, Address string
	Dir           string            // for its state
	Kube          *kubeapi.Client   // may be shared; somebody else runs it
	Plugins       admission.Plugins // what they offer never changes
	Runtime       HollowRuntime
}

// HollowRuntime is a container runtime in memory.
type HollowRuntime interface {
	podRuntime
	podworker.Actuator
	probes
	volumes
	Run(context.Context) error
}

// Hollow is a node without a host: the same domains as an agent's, joined to a runtime in memory.
// It has no ports, sockets, cgroups, volumes or manifests.
type Hollow struct {
	pods podDomain
	own  clusterNode
	run  []part.Part
}

// hollowRuntime is the name of the container runtime in statuses.
const hollowRuntime = "hollow"

// orphanPeriod is the time between two searches for undesired pods that hold something: those that
// were deleted while the process did not run.
const orphanPeriod = 30 * time.Second

// Join makes a node of this kind. Only its event recorder runs yet, until ctx ends.
func (k HollowKind) Join(ctx context.Context, c HollowConfig) (*Hollow, error) {
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of node %s: %w", c.Name, err)
	}
	cfg := *k.cfg
	cfg.RootDir, cfg.Node.HostnameOverride = c.Dir, c.Name
	n := node{
		self:   self{&cfg, c.Name, k.bootID, k.booted, k.rules, k.hardware},
		events: event.New(ctx, c.Name), metrics: k.metrics, kube: c.Kube,
	}
	n.events.Send(kubeapi.EventSink(c.Kube.Events()))
	var err error
	if n.store, err = openStore(ctx, c.Dir, n.events); err != nil {
		return nil, err
	}
	var pubs publishers
	if err := pubs.toCluster(n); err != nil {
		return nil, err
	}
	statuses := newStatuses(n, pubs, statusEnds{
		runtime: status.Node{Runtime: hollowRuntime}, inventory: c.Plugins.Inventory,
		hostIPs: func() []string { return []string{c.Address} },
	})
	own := newClusterNode(n, newKnownNode(n), statuses.Store, nodeEnds{
		inventory: c.Plugins.Inventory, offered: new(mailbox.Topic), describe: n.hollow(c.Address),
		unanswered: func() {}, // all nodes share the connections, and HTTP/2 detects dead ones
	})
	pods := newPods(ctx, n, statuses, podEnds{
		admissionEnds: admissionEnds{
			node: own, plugins: c.Plugins, state: func() nodestatus.State { return nodestatus.State{} },
			supports: supports{groupsPolicy: true, appArmor: true},
		},
		runtime: c.Runtime, actuator: c.Runtime, probes: c.Runtime, volumes: c.Runtime,
	})
	look := housekeeping.New(pods.orphans(n, c.Runtime.All, orphanPeriod, nil))
	return &Hollow{pods, own, slices.Concat(pods.first, pods.then, own.run, []part.Part{
		part.Of("assignment store", n.store.Run), part.Of("runtime", c.Runtime.Run), part.Of("housekeeping", look.Run),
	})}, nil
}

// hollow adds to a node's facts what a host would say.
func (n node) hollow(address string) func(*nodestatus.Facts) {
	return func(f *nodestatus.Facts) {
		f.Addresses.All = []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: address}, {Type: v1.NodeHostName, Address: n.name},
		}
		f.Info = v1.NodeSystemInfo{
			MachineID: n.name, SystemUUID: n.name, BootID: n.bootID,
			OSImage:         n.hardware.Get().Machine.Name(),
			OperatingSystem: "linux", Architecture: goruntime.GOARCH,
			KubeletVersion:          version.Get().GitVersion,
			ContainerRuntimeVersion: hollowRuntime + "://0.0.0",
		}
	}
}

// Run runs the node until ctx ends or a part of it cannot go on.
func (h *Hollow) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	part.Start(ctx, group, h.run)
	return group.Wait()
}

// Pods lists the pods of the node with their statuses.
func (h *Hollow) Pods() []*v1.Pod { return h.pods.statuses.List() }

// Object returns the node's object; nil: it is not known yet.
func (h *Hollow) Object() *v1.Node { return h.own.object() }
