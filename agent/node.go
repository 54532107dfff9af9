package agent

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/neighbours"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/agent/serving/metrics"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/tracing"
	"github.com/numalet/numalet/agent/upkeep/checkpoints"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/topology"
)

// self is who a node is, and what it decides by.
type self struct {
	cfg      *config.Config
	name     string
	bootID   string
	booted   time.Time // the kernel
	rules    topology.Rules
	hardware *machine.Current
}

// node has what every node stands on, a hollow one too. It is whole once it exists: the domains are
// made of it.
type node struct {
	self
	store    *store.Store
	events   *event.Recorder
	metrics  *metrics.Metrics
	registry kubemetrics.KubeRegistry // nil: nobody reads metrics
	kube     *kubeapi.Client          // nil: the node is in no cluster
	trace    *tracing.Tracing         // nil: it is off
}

// identify settles who the node is, and reads its machine.
func identify(cfg *config.Config) (s self, err error) {
	s.cfg = cfg
	if s.name, err = cfg.NodeName(); err != nil {
		return s, err
	}
	if s.bootID, err = hostinfo.BootID(); err != nil {
		return s, err
	}
	if s.booted, err = bootTime(); err != nil {
		return s, err
	}
	if s.rules, err = cfg.Rules(); err != nil {
		return s, err
	}
	s.hardware, err = machine.Open(cfg)
	return s, err
}

// open settles who the node is, reads its machine and its state, and reaches the runtime.
func open(ctx context.Context, cfg *config.Config) (node, host, error) {
	k := &cfg.Kubelet
	if err := hostinfo.Check(ctx, k); err != nil {
		return node{}, host{}, err
	}
	moved, err := hostinfo.MakeDirs(cfg.RootDir, k.PodLogsDir, logfiles.PlaceAt(k.PodLogsDir).Links)
	if err != nil {
		return node{}, host{}, err
	}
	s, err := identify(cfg)
	if err != nil {
		return node{}, host{}, err
	}
	n := node{self: s, registry: server.NewRegistry(), events: event.New(ctx, s.name)}
	for _, err := range moved {
		_ = n.quarantined(ctx, err, "DirectoryQuarantined", "plugins register again")
	}
	if n.trace, err = tracing.New(ctx, k.Tracing, s.name); err != nil {
		return n, host{}, err
	}
	if n.metrics, err = newMetrics(s, n.registry); err != nil {
		return n, host{}, err
	}
	n.metrics.Startup.Booted(s.booted)
	if n.kube, err = newKube(ctx, n); err != nil {
		return n, host{}, err
	}
	warnOfHost(ctx, cfg.RootDir, n.events)
	others, err := neighbours.New(neighbours.Config{
		Root: cfg.RootDir, Tell: func(message string) {
			klog.FromContext(ctx).Error(nil, message)
			n.events.OnNode(v1.EventTypeWarning, neighbours.ReasonShared, message)
		},
	})
	if err != nil {
		return n, host{}, err
	}
	if n.store, err = openStore(ctx, cfg.RootDir, n.events); err != nil {
		return n, host{}, err
	}
	n.tellDriverCPUs(ctx)
	h, err := reach(ctx, n, others)
	return n, h, err
}

// newMetrics makes the agent's own metrics.
func newMetrics(s self, registry kubemetrics.KubeRegistry) (*metrics.Metrics, error) {
	return metrics.New(metrics.Config{
		Registry: registry, Node: s.name, StaticCPUs: s.hardware.Get().CPUs != nil,
		Rules: func() metrics.Rules {
			h := s.hardware.Get()
			return metrics.Rules{
				Rules: s.rules, Machine: h.Machine,
				WholeCores: h.CPUs != nil && h.CPUs.WholeCores(),
			}
		},
	})
}

// bootTime returns when the kernel started.
func bootTime() (time.Time, error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return time.Time{}, err
	}
	return proc.BootTime()
}

// newKube makes the client of the API server; nil without --kubeconfig.
func newKube(ctx context.Context, n node) (*kubeapi.Client, error) {
	if n.cfg.Cluster.Kubeconfig == "" {
		return nil, nil
	}
	kube, err := kubeapi.New(ctx, kubeapi.Config{
		Cluster: n.cfg.Cluster, Kubelet: &n.cfg.Kubelet, Node: n.name,
		Gates: n.cfg.Gates, Registry: n.registry, Tell: n.events.OnNode, Tracer: n.trace.Provider(),
	})
	if err == nil {
		n.events.Send(kubeapi.EventSink(kube.Events()))
	}
	return kube, err
}

// warnOfHost tells of hosts on which pods are limited or protected less than elsewhere.
func warnOfHost(ctx context.Context, root string, events *event.Recorder) {
	if !hostinfo.Unified() {
		events.OnNode(v1.EventTypeWarning, "CgroupV1", "cgroup v1 detected: it is deprecated in "+
			"Kubernetes, and much of what limits pods is cgroup v2's alone; migrate to cgroup v2")
	}
	if err := hostinfo.WarnOfSwap(hostinfo.Swaps, root, mount.New(""), events.OnNode); err != nil {
		klog.FromContext(ctx).Error(err, "Memory-backed volumes may be swapped to disk")
	}
}

// openStore opens the state file. One that cannot be used is moved aside: what runs makes up for
// it.
func openStore(ctx context.Context, dir string, events *event.Recorder) (*store.Store, error) {
	s, err := store.Open(dir)
	if s == nil {
		return nil, err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Assignments are rebuilt from the containers that run")
		events.OnNode(v1.EventTypeWarning, checkpoints.ReasonQuarantined,
			err.Error()+"; assignments are rebuilt from the containers that run")
	}
	return s, nil
}

// enabled reports whether a feature gate is on.
func (s self) enabled(gate string) bool { return s.cfg.Gates.Enabled(featuregate.Feature(gate)) }

// close ends what open began, and returns err with what went wrong then.
func (h host) close(err error) error { return errors.Join(err, h.client.Close()) }
