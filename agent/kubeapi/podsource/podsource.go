// Package podsource is the feed "api": it lists and watches the pods that the API server has for
// this node.
//
// Only a PodList with a resource version counts as a list, and one that would end all running pods
// is requested a second time. Before the first accepted list nothing is delivered, and while the
// API server does not answer the pods stay as they are. However often a watch ends, expires or is
// cut, and whatever is listed again, source.Mux gets whole sets and finds the differences, so
// unchanged pods are not touched. Unlike the kubelet's, the feed does not wait for the Node object:
// no decision on a pod depends on it, and a pod bound to the node should run.
//
// A set is made when something has changed and the previous set was taken, so that a burst of
// changes makes one set. A set costs a comparison of each pod's pointer; only changed pods are
// compared in full.
package podsource

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// retries is the back-off after failed lists and watches. It reaches a recovered API server soon,
// and spreads the requests of many nodes.
func retries() *wait.Backoff {
	return &wait.Backoff{
		Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 8, Cap: 10 * time.Second,
	}
}

// Config says whose pods to follow.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node  string
	Rules source.Rules
	// Report receives the pods that are dropped or refused. It must not block.
	Report func(source.Problem)
	// Saw gets all pods that the API server has for the node, whenever one changed, and returns those
	// that should run. It must not block or change pods.
	Saw func(all []*v1.Pod) []*v1.Pod
	// Running returns the pods in the runtime. A list without any of the API server's pods that run
	// must be confirmed. nil: nothing runs.
	Running func() []cri.Pod
	// Restored receives an element when the API server was restored from a backup: known versions are
	// then no longer valid.
	Restored <-chan struct{}
}

// Feed implements source.Feed.
type Feed struct {
	cfg    Config
	screen *source.Screen
	store  *store
}

// New returns the feed.
func New(c Config) *Feed {
	return &Feed{
		cfg: c, screen: source.NewScreen(c.Rules, c.Report),
		store: &store{
			pods: map[types.NamespacedName]*v1.Pod{}, changed: make(chan struct{}, 1),
		},
	}
}

// Name implements source.Feed.
func (*Feed) Name() string { return source.APISource }

// Run implements source.Feed.
func (f *Feed) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	var following sync.WaitGroup
	following.Go(func() { kubeapi.Again(ctx, f.cfg.Restored, f.follow) })
	defer following.Wait()
	for await.On(ctx, f.store.changed) {
		deliver(f.cfg.Saw(f.screen.Pass(f.store.of(f.cfg.Node))))
	}
	return nil
}

// follow lists and watches until ctx ends. It does not compare versions in its first list with
// known ones: the history may be another.
func (f *Feed) follow(ctx context.Context) {
	f.store.distrust()
	mine := fields.OneTermEqualSelector("spec.nodeName", f.cfg.Node)
	all := newPods(f.cfg.Client)
	take := func(list []*v1.Pod) error {
		if err := f.believe(ctx, all, list); err != nil {
			return requests.Short(err)
		}
		return f.store.replace(list)
	}
	cache.NewReflectorWithOptions(kubeapi.Selected(f.cfg.Client, all, mine, nil), &v1.Pod{},
		kubeapi.Store[*v1.Pod]{Put: f.store.put, Drop: f.store.drop, All: take},
		cache.ReflectorOptions{Name: "pods of the node", Backoff: retries()},
	).RunWithContext(ctx)
}

// store is what the reflector maintains. It owns the pods that it is given.
type store struct {
	mu      sync.Mutex // guards pods and doubted
	pods    map[types.NamespacedName]*v1.Pod
	doubted bool // a resource version does not identify a pod's content
	changed chan struct{}
}

// distrust makes the next list count as it is, since it comes from another history.
func (s *store) distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubted = true
}

// of returns the pods of a node; there are no others unless the API server errs.
func (s *store) of(node string) []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*v1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// replace stores a whole list. Unchanged pods keep their pointers.
func (s *store) replace(list []*v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := make(map[types.NamespacedName]*v1.Pod, len(list))
	for _, p := range list {
		name := own(p)
		if was := s.pods[name]; !s.doubted && was != nil && was.UID == p.UID &&
			was.ResourceVersion == p.ResourceVersion && p.ResourceVersion != "" {
			p = was
		}
		pods[name] = p
	}
	s.pods, s.doubted = pods, false
	await.Wake(s.changed)
	return nil
}

// put stores a new or changed pod.
func (s *store) put(p *v1.Pod) error {
	name := own(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[name] = p
	await.Wake(s.changed)
	return nil
}

// drop removes a pod.
func (s *store) drop(p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, own(p))
	await.Wake(s.changed)
	return nil
}

// own drops the managed fields, which nobody on a node needs and which are a third of a pod.
func own(p *v1.Pod) types.NamespacedName {
	p.ManagedFields = nil
	return podspec.Name(p)
}
