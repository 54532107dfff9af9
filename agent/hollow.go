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
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster"
	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/agent/serving/metrics"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
)

// HollowKind has what hollow nodes of one configuration share: their machine, and metrics that
// nobody reads.
type HollowKind struct {
	node.Identity
	metrics *metrics.Metrics
}

// NewHollowKind reads the configuration's machine. Its host's name and addresses play no part.
func NewHollowKind(cfg *config.Config) (k HollowKind, err error) {
	own := *cfg
	own.Node.HostnameOverride = "node"
	if k.Identity, err = node.Identify(&own); err != nil {
		return k, err
	}
	k.metrics, err = newMetrics(k.Identity, nil)
	return k, err
}

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
	pods.Runtime
	podworker.Actuator
	pods.Probes
	pods.Volumes
	pods.Records
	// Resize gives the pod's containers the resources that they are allocated. settled, which does not
	// block, is called when all have them.
	Resize(pod *v1.Pod, settled func())
	Run(context.Context) error
}

// Hollow is a node without a host: the same floors as an agent's, joined to a runtime in memory.
// It has no ports, sockets, cgroups, volumes or manifests.
type Hollow struct {
	pods   *pods.Pods
	object func() *v1.Node
	run    []part.Part
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
	cfg := *k.Settings
	cfg.RootDir, cfg.Node.HostnameOverride = c.Dir, c.Name
	own := k.Identity
	own.Settings, own.Name = &cfg, c.Name
	recorder := event.New(ctx, c.Name)
	recorder.Send(kubeapi.EventSink(c.Kube.Events()))
	n := node.Node{Identity: own, Events: recorder}
	assigned, err := placement.OpenStore(ctx, n)
	if err != nil {
		return nil, err
	}
	events := mailbox.New[syncloop.Event]()
	ends, err := pods.OpenEndings(ctx, n, events)
	if err != nil {
		return nil, err
	}
	api, err := cluster.New(n, c.Kube)
	if err != nil {
		return nil, err
	}
	statuses := pods.NewStatuses(pods.StatusConfig{
		Node: n, Runtime: status.Node{Runtime: hollowRuntime}, Get: c.Runtime.Get,
		HostIPs: func() []string { return []string{c.Address} }, Publishers: api.Publishers(),
		Devices: placement.Health(n, assigned, c.Plugins.Inventory, nil, placement.Claims{}),
		Metrics: k.metrics, Endings: ends, Events: events,
	})
	supports := node.Supports{GroupsPolicy: true, AppArmor: true}
	object := cluster.NewNode(api, cluster.NodeConfig{
		Store: assigned, Pods: statuses.Store, Inventory: c.Plugins.Inventory, Offered: new(mailbox.Topic),
		Describe: []func(*nodestatus.Facts){hollow(n, c.Address)}, Startup: k.metrics.Startup,
		Unanswered: func() {}, // all nodes share the connections, and HTTP/2 detects dead ones
	})
	recorder.Follow(object.Node)
	road := pods.New(ctx, pods.Config{
		Statuses: statuses, Metrics: k.metrics, Cluster: api.Pods(),
		Queue: placement.QueueConfig{
			Node: n, Store: assigned, Plugins: c.Plugins, Supports: supports,
			State:  func() nodestatus.State { return nodestatus.State{} },
			Object: api.Object, Reread: object.Reread, Clustered: true,
		},
		Ends: pods.Ends{Runtime: c.Runtime, Actuator: c.Runtime, Probes: c.Runtime, Volumes: c.Runtime,
			Records: c.Runtime, Resized: resized(statuses, c.Runtime)},
	})
	look := housekeeping.New(road.Orphans(assigned.State, orphanPeriod, nil))
	return &Hollow{road, api.Object, slices.Concat(road.First(), road.Then(), object.Parts(), []part.Part{
		part.Of("assignment store", assigned.Run), part.Of("runtime", c.Runtime.Run), part.Of("housekeeping", look.Run),
	})}, nil
}

// resized has the runtime give a pod what it is allocated.
func resized(of *pods.Statuses, runtime HollowRuntime) func(types.UID) {
	return func(uid types.UID) {
		settled := func() { of.Settled(uid, nil) }
		if pod, known := of.Get(uid); known {
			runtime.Resize(pod, settled)
		} else {
			settled()
		}
	}
}

// hollow adds to a node's facts what a host would say.
func hollow(n node.Node, address string) func(*nodestatus.Facts) {
	return func(f *nodestatus.Facts) {
		f.Addresses.All = []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: address}, {Type: v1.NodeHostName, Address: n.Name},
		}
		f.Info = v1.NodeSystemInfo{
			MachineID: n.Name, SystemUUID: n.Name, BootID: n.BootID,
			OSImage:         n.Machine().Name(),
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
func (h *Hollow) Pods() []*v1.Pod { return h.pods.List() }

// Object returns the node's object; nil: it is not known yet.
func (h *Hollow) Object() *v1.Node { return h.object() }
