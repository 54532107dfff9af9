package agent

import (
	"context"
	"time"

	kubemetrics "k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cluster"
	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/agent/serving/metrics"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/tracing"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/mailbox"
)

// ends hear what every floor does.
type ends struct {
	events  *event.Recorder
	metrics *metrics.Metrics
	trace   *tracing.Tracing // nil: it is off
}

// base has the host, the client of the API server and the observer of the runtime: every floor stands on them.
type base struct {
	ends
	host *node.Host
	kube *kubeapi.Client // nil: the node is in no cluster
	pleg *lifecycle.PLEG // what the runtime has
}

// open settles who the node is, reads its machine, and reaches the API server's client and the runtime.
func open(ctx context.Context, cfg *config.Config) (b base, err error) {
	k := &cfg.Kubelet
	if err := hostinfo.Check(ctx, k); err != nil {
		return b, err
	}
	moved, err := hostinfo.MakeDirs(cfg.RootDir, k.PodLogsDir, logfiles.PlaceAt(k.PodLogsDir).Links)
	if err != nil {
		return b, err
	}
	id, err := node.Identify(cfg)
	if err != nil {
		return b, err
	}
	b.events = event.New(ctx, id.Name)
	n := node.Node{Identity: id, Registry: server.NewRegistry(), Events: b.events}
	for _, err := range moved {
		_ = n.Quarantined(ctx, err, "DirectoryQuarantined", "plugins register again")
	}
	if b.trace, err = tracing.New(ctx, k.Tracing, id.Name); err != nil {
		return b, err
	}
	if b.metrics, err = newMetrics(id, n.Registry); err != nil {
		return b, err
	}
	b.metrics.Startup.Booted(id.Booted)
	if b.kube, err = cluster.Connect(ctx, n, b.trace.Provider()); err != nil {
		return b, err
	}
	if b.kube != nil {
		b.events.Send(kubeapi.EventSink(b.kube.Events()))
	}
	b.host, err = node.Reach(ctx, n, node.Links{Tracer: b.trace.Provider(), Clustered: b.kube != nil})
	if err != nil {
		return b, err
	}
	b.pleg, err = lifecycle.New(lifecycle.Config{Client: b.host.Client, Registry: n.Registry})
	if err != nil {
		return b, b.host.Close(err)
	}
	return b, nil
}

// newMetrics makes the agent's own metrics.
func newMetrics(id node.Identity, registry kubemetrics.KubeRegistry) (*metrics.Metrics, error) {
	return metrics.New(metrics.Config{
		Registry: registry, Node: id.Name, StaticCPUs: id.Hardware.Get().CPUs != nil,
		Rules: func() metrics.Rules {
			h := id.Hardware.Get()
			return metrics.Rules{
				Rules: id.Rules, Machine: h.Machine,
				WholeCores: h.CPUs != nil && h.CPUs.WholeCores(),
			}
		},
	})
}

// spans returns the maker of spans for pods; nil if tracing is off.
func (e ends) spans() pods.Trace {
	if e.trace == nil {
		return nil
	}
	return e.trace
}

// state returns what keeps the node from taking pods now. The node's conditions and admission are made of it.
func (b base) state() nodestatus.State {
	s := b.host.State()
	if err := b.pleg.Healthy(time.Now()); err != nil {
		s.NotReady = append(s.NotReady, "PLEG is not healthy: "+err.Error())
	}
	return s
}

// changes lists what is published when state is another.
func (b base) changes() []mailbox.Source { return append(b.host.Changes(), b.pleg.Health()) }

// describe adds what the host says to the node's facts.
func (b base) describe(f *nodestatus.Facts) {
	b.host.Describe(f)
	f.State = b.state()
}
