package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/cluster/statuses"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podstatus/kept"
	"github.com/numalet/numalet/agent/serving/podsapi"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// publisher tells others of the statuses of the node's pods. None of its methods but Run blocks.
type publisher interface {
	Wrote(podstatus.Change)
	Run(context.Context) error
}

// What some publishers do besides.
type (
	// hearer forgets what no source has, once every source was heard.
	hearer interface{ Heard() }
	// recaller knows from the first mirror pods what was told of static pods: it reports whether all
	// has them.
	recaller interface{ Mirrored(all []*v1.Pod) bool }
	// seer gets all pods that the API server has for the node.
	seer interface{ Saw(all []*v1.Pod) }
	// syncer waits until those whom it tells have the newest statuses, and reports whether they do.
	syncer interface{ Synced(context.Context) bool }
)

// publishers are those of a node, by name.
type publishers struct {
	all []publisher
	run []part.Part
	// complete is set once every source of pods was heard; nil: nobody asks.
	complete *atomic.Bool
	before   *kept.Statuses // of an earlier run; nil on a hollow node
	// told gets pods of which the API server has the newest status, and knows reports whether it has;
	// nil: there is no API server.
	told  *mailbox.Box[types.UID]
	knows func(types.UID) bool
}

// newPublishers makes those of a node with a host.
func newPublishers(ctx context.Context, n node) (p publishers, err error) {
	p.complete = new(atomic.Bool)
	p.before, err = kept.Open(ctx, n.cfg.RootDir)
	if err = n.quarantined(ctx, err, "KeptStatusesQuarantined", "static pods are not ready until "+
		"their probes have answered again"); err != nil {
		return p, err
	}
	err = errors.Join(p.toHost(n), p.toCluster(n))
	return p, err
}

// recall returns what an earlier run reported of a pod, as far as the runtime agrees.
func (p publishers) recall(n node, h host) func(*v1.Pod) v1.PodStatus {
	return func(pod *v1.Pod) v1.PodStatus {
		observed, recorded := h.pleg.Get(pod.UID)
		return p.before.RecallFor(pod, observed, recorded)
	}
}

func (p *publishers) add(name string, one publisher) {
	p.all, p.run = append(p.all, one), append(p.run, part.Of(name, one.Run))
}

func (p publishers) wrote(c podstatus.Change) {
	for _, one := range p.all {
		one.Wrote(c)
	}
}

func (p publishers) heard() {
	if p.complete != nil {
		p.complete.Store(true)
	}
	for _, one := range p.all {
		if one, ok := one.(hearer); ok {
			one.Heard()
		}
	}
}

// mirrored reports whether the mirror pods may now show the statuses that an earlier run wrote.
func (p publishers) mirrored(all []*v1.Pod) (news bool) {
	for _, one := range p.all {
		if one, ok := one.(recaller); ok {
			news = one.Mirrored(all) || news
		}
	}
	return news
}

// saw returns the pods that are to run: all but the mirror pods.
func (p publishers) saw(all []*v1.Pod) []*v1.Pod {
	for _, one := range p.all {
		if one, ok := one.(seer); ok {
			one.Saw(all)
		}
	}
	return mirror.Split(all)
}

// synced waits until all publishers have told the newest statuses, or ctx ends. It reports whether
// they have.
func (p publishers) synced(ctx context.Context) bool {
	for _, one := range p.all {
		if one, ok := one.(syncer); ok && !one.Synced(ctx) {
			return false
		}
	}
	return true
}

// toCluster adds the publishers that tell the API server.
func (p *publishers) toCluster(n node) error {
	if n.kube == nil {
		return nil
	}
	p.told = mailbox.New[types.UID]()
	s, err := statuses.New(statuses.Config{
		Client: n.kube.Main(), Registry: n.registry, Tell: n.events.About, Told: p.told.Put,
	})
	if err != nil {
		return err
	}
	m, err := mirror.New(mirror.Config{Client: n.kube.Main(), Node: n.name, Registry: n.registry})
	if err != nil {
		return err
	}
	p.knows = s.Told
	p.add("pod statuses", s)
	p.add("mirror pods", m)
	return nil
}

// toHost adds the publishers that tell the next run of the agent, and programs on the node.
func (p *publishers) toHost(n node) error {
	p.add("kept statuses", p.before)
	if !n.cfg.Gates.Enabled("PodsAPI") {
		return nil
	}
	local, err := podsapi.New(podsapi.Config{
		Socket: filepath.Join(n.cfg.RootDir, "pods-api", "pods-api.sock"), Registry: n.registry,
	})
	if err == nil {
		p.add("Pods API", local)
	}
	return err
}
