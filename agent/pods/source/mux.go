package source

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/topology/podspec"
)

// MuxConfig says what to merge.
type MuxConfig struct {
	Feeds []Feed
	// Identities determines the UIDs of pods of manifests; nil keeps those of their feeds. Pods of the
	// API server keep their UIDs.
	Identities *Identities
	// Report receives the pods that are left out; nil ignores them. It must not block.
	Report func(complaint.Problem)
}

// Mux merges the sets of all feeds into one stream of changes.
type Mux struct {
	feeds   []Feed
	known   *Identities
	report  func(complaint.Problem)
	sets    chan set
	updates chan Update

	mu   sync.Mutex
	seen map[string]bool // sources whose first complete set was sent
	// lasting marks the pods, of all sources, that every agent gives the same UID.
	lasting map[types.UID]bool
}

// set is the full set of one source.
type set struct {
	source  string
	pods    []*v1.Pod
	partial bool // pods may be missing
}

// hesitant is a feed with sets that may be partial: a missing pod then means nothing.
type hesitant interface{ Partial() bool }

// fallible is a feed that may hang.
type fallible interface {
	Healthy(now time.Time, limit time.Duration) error
}

// Healthy returns an error if a feed has been hanging for longer than limit.
func (m *Mux) Healthy(now time.Time, limit time.Duration) error {
	for _, f := range m.feeds {
		if f, ok := f.(fallible); ok {
			if err := f.Healthy(now, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// NewMux returns a Mux; Run starts it.
func NewMux(c MuxConfig) *Mux {
	report := c.Report
	if report == nil {
		report = func(complaint.Problem) {}
	}
	return &Mux{
		feeds:   c.Feeds,
		known:   c.Identities,
		report:  report,
		sets:    make(chan set),
		updates: make(chan Update, 50),
		seen:    map[string]bool{},
	}
}

// Updates returns the stream of changes. It is never closed.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Sources returns the names of the feeds in the configured order.
func (m *Mux) Sources() []string {
	names := make([]string, len(m.feeds))
	for i, f := range m.feeds {
		names[i] = f.Name()
	}
	return names
}

// SeenAll reports whether the first complete set of every source was sent and, as the caller
// reports, handled. Nothing may be cleaned up before: pods may just not be known yet.
func (m *Mux) SeenAll(handled func(source string) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(m.feeds, func(f Feed) bool {
		return !m.seen[f.Name()] || !handled(f.Name())
	})
}

// Run runs the feeds and merges their sets until ctx ends. It waits for all feeds and returns their
// error.
func (m *Mux) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range m.feeds {
		name := f.Name()
		deliver := func(pods []*v1.Pod) {
			h, ok := f.(hesitant)
			await.Send(ctx, m.sets, set{name, pods, ok && h.Partial()})
		}
		g.Go(func() error { return f.Run(ctx, deliver) })
	}
	g.Go(func() error {
		m.merge(ctx)
		return nil
	})
	return g.Wait()
}

// merge owns the state of all sources.
func (m *Mux) merge(ctx context.Context) {
	members := map[string]map[types.UID]member{}
	sets := map[string][]*v1.Pod{}
	ledgers := map[string]*ledger{}
	for _, f := range m.feeds {
		ledgers[f.Name()] = &ledger{report: m.report}
	}
	for {
		var s set
		select {
		case s = <-m.sets:
		case <-m.known.retry():
			m.known.save()
			continue
		case <-ctx.Done():
			return
		}
		sets[s.source] = s.pods
		if m.known != nil && s.source != podspec.APISource {
			sets[s.source] = m.known.Of(s.pods)
		}
		taken := map[types.UID]string{}
		// a change of one source may affect which pods the others must leave out
		for _, f := range m.feeds {
			name := f.Name()
			given, present := sets[name]
			if !present {
				continue
			}
			pods, clashes := beside(taken, name, given)
			next, updates, left := merge(name, members[name], pods, time.Now())
			members[name] = next
			ledgers[name].now(append(clashes, left...))
			for _, u := range updates {
				if !await.Send(ctx, m.updates, u) {
					return
				}
			}
		}
		m.handed(s, members)
	}
}

// beside leaves out pods whose UIDs belong to earlier sources, and records the UIDs of the others.
func beside(taken map[types.UID]string, source string, pods []*v1.Pod) (
	kept []*v1.Pod, left []finding) {
	kept = make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		if other, is := taken[p.UID]; is {
			left = append(left, finding{Problem: complaint.Problem{Source: source,
				Name: p.Namespace + "/" + p.Name, Reason: manifest.FailedValidation,
				Message: fmt.Sprintf("a pod of the source %q has the same UID %s; change "+
					"metadata.uid of one of them", other, p.UID)}})
			continue
		}
		kept = append(kept, p)
	}
	for _, p := range kept {
		taken[p.UID] = source
	}
	return kept, left
}

// handed records that the changes of a set were sent.
func (m *Mux) handed(s set, members map[string]map[types.UID]member) {
	lasting := map[types.UID]bool{}
	for _, of := range members {
		for uid, is := range of {
			lasting[uid] = is.pod.Annotations[AnnotationManifest] != string(uid)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[s.source] = m.seen[s.source] || !s.partial
	m.lasting = lasting
}

// Lasting reports whether another agent that takes over this node will know the pod: it is in a
// source, and its UID comes from its manifest or another agent. Until all sources were seen, it
// returns true for every pod.
func (m *Mux) Lasting(uid types.UID) bool {
	if !m.SeenAll(func(string) bool { return true }) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lasting[uid]
}
