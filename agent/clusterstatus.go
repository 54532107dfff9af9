package agent

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/mirror"
	"github.com/numalet/numalet/agent/kubeapi/statuses"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/agent/podsapi"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podstatus/kept"
)

// told is what tells others of the node's pods: the next run of the agent, programs on the node, and
// the API server, of which a standalone node has none.
type told struct {
	kept     *kept.Statuses
	statuses *statuses.Statuses
	mirrors  *mirror.Mirrors
	metrics  *metrics.Metrics
	local    *podsapi.Server // nil: the gate PodsAPI is off
}

// newTold makes it.
func newTold(ctx context.Context, n node, m *metrics.Metrics) (t told, err error) {
	if t.kept, err = kept.Open(ctx, n.cfg.RootDir); err != nil {
		return t, err
	}
	if n.cfg.Gates.Enabled("PodsAPI") {
		if t.local, err = podsapi.New(podsapi.Config{
			Socket:   filepath.Join(n.cfg.RootDir, "pods-api", "pods-api.sock"),
			Registry: n.registry,
		}); err != nil {
			return t, err
		}
	}
	if n.kube == nil {
		return t, nil
	}
	t.metrics = m
	if t.statuses, err = statuses.New(statuses.Config{
		Client: n.kube.Main(), Registry: n.registry,
	}); err != nil {
		return t, err
	}
	t.mirrors, err = mirror.New(mirror.Config{
		Client: n.kube.Main(), Node: n.name, Registry: n.registry,
	})
	return t, err
}

// wrote takes what was written of a pod here.
func (t told) wrote(c podstatus.Change) {
	t.kept.Wrote(c)
	if t.local != nil {
		t.local.Wrote(c)
	}
	if t.statuses != nil {
		t.statuses.Wrote(c)
		t.mirrors.Wrote(c)
	}
}

// saw takes all pods that the API server has for the node, and returns those that are to run.
func (t told) saw(all []*v1.Pod) []*v1.Pod {
	t.statuses.Saw(all)
	t.mirrors.Saw(all)
	t.metrics.Delivered(all)
	return mirror.Split(all)
}

// heard takes that every source was heard: what no source has is to go.
func (t told) heard() {
	t.kept.Heard()
	if t.local != nil {
		t.local.Heard()
	}
	if t.mirrors != nil {
		t.mirrors.Heard()
	}
}

func (t told) parts() []part {
	out := []part{{"kept statuses", t.kept.Run}}
	if t.local != nil {
		out = append(out, part{"Pods API", t.local.Run})
	}
	if t.statuses == nil {
		return out
	}
	return append(out, part{"pod statuses", t.statuses.Run}, part{"mirror pods", t.mirrors.Run})
}

// recordEvents has the API server have the node's events too.
func recordEvents(n node) {
	if n.kube != nil {
		n.events.Send(kubeapi.EventSink(n.kube.Events()))
	}
}
