package agent

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/addresses"
	"github.com/numalet/numalet/agent/allocation/store"
	"github.com/numalet/numalet/agent/checkpoints"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/event"
	"github.com/numalet/numalet/agent/images"
	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/neighbours"
	"github.com/numalet/numalet/agent/runtimeup"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
)

// node is what the agent stands on: what it is told to be, and what was there before it. Parts are
// made of it.
type node struct {
	cfg      *config.Config
	name     string
	host     host
	kube     *kubeapi.Client // nil: standalone
	rules    topology.Rules
	hardware *machine.Current
	client   *cri.Client
	runtime  runtime
	tree     *cgroups.Tree // nil where cgroupsPerQOS is off
	store    *store.Store
	registry metrics.KubeRegistry
	events   *event.Recorder
}

// host is what the machine is known by.
type host struct {
	addresses *addresses.Addresses
	bootID    string
}

// runtime is what the container runtime is, who else uses it, and who may use its images.
type runtime struct {
	cri.RuntimeStatus
	up     *runtimeup.Follower
	others *neighbours.Neighbours
	images *images.Records // nil: whoever names one may
}

// open settles who the node is, reads its machine and its state, and reaches the runtime.
func open(ctx context.Context, cfg *config.Config) (node, error) {
	if err := checkHost(ctx, cfg); err != nil {
		return node{}, err
	}
	if err := makeDirs(cfg); err != nil {
		return node{}, err
	}
	n, err := identify(ctx, cfg)
	if err != nil {
		return n, err
	}
	if n.hardware, err = machine.Open(cfg); err != nil {
		return n, err
	}
	n.registry, n.events = server.NewRegistry(), event.New(ctx, n.name)
	if n.kube, err = newKube(ctx, n); err != nil {
		return n, err
	}
	recordEvents(n)
	if !unified() {
		n.events.OnNode(v1.EventTypeWarning, "CgroupV1", "cgroup v1 detected: it is deprecated in "+
			"Kubernetes, and much of what limits pods is cgroup v2's alone; migrate to cgroup v2")
	}
	if err := warnOfSwap(procSwaps, cfg.RootDir, mount.New(""), n.events.OnNode); err != nil {
		klog.FromContext(ctx).Error(err, "Memory-backed volumes may be swapped to disk")
	}
	n.runtime.others, err = neighbours.New(neighbours.Config{
		Root: cfg.RootDir, Tell: func(message string) {
			klog.FromContext(ctx).Error(nil, message)
			n.events.OnNode(v1.EventTypeWarning, neighbours.ReasonShared, message)
		},
	})
	if err != nil {
		return n, err
	}
	if n.runtime.images, err = newImageRecords(n); err != nil {
		return n, err
	}
	if n.client, err = connect(ctx, n); err != nil {
		return n, err
	}
	if err := n.reach(ctx); err != nil {
		return n, errors.Join(err, n.client.Close())
	}
	return n, nil
}

// identify settles who the node is.
func identify(ctx context.Context, cfg *config.Config) (n node, err error) {
	n.cfg = cfg
	if n.name, err = cfg.NodeName(); err != nil {
		return n, err
	}
	if n.host.bootID, err = bootID(); err != nil {
		return n, err
	}
	n.host.addresses = addresses.New(ctx, addresses.Config{
		Node: n.name, Asked: cfg.NodeIPs(), Standalone: cfg.Cluster.Kubeconfig == "",
		Provided: cfg.Cluster.Provider == "external",
	})
	n.rules, err = cfg.Rules()
	return n, err
}

// reach opens the state file, and asks the runtime what it is. A state file that cannot be used is
// moved aside: what runs makes up for it.
func (n *node) reach(ctx context.Context) (err error) {
	log := klog.FromContext(ctx)
	n.store, err = store.Open(n.cfg.RootDir)
	if n.store == nil {
		return err
	}
	if err != nil {
		log.Error(err, "Assignments are rebuilt from the containers that run")
		n.events.OnNode(v1.EventTypeWarning, checkpoints.ReasonQuarantined,
			err.Error()+"; assignments are rebuilt from the containers that run")
	}
	if n.runtime.RuntimeStatus, err = n.client.Status(ctx); err != nil {
		return err
	}
	n.runtime.up = followRuntime(*n)
	log.Info("Connected to the container runtime", "name", n.runtime.Name,
		"version", n.runtime.Version, "endpoint", n.cfg.Kubelet.ContainerRuntimeEndpoint)
	if n.tree, err = cgroupTree(ctx, n); err != nil {
		return err
	}
	return tuneKernel(ctx, &n.cfg.Kubelet)
}
