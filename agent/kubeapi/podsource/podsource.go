// Package podsource is the feed "api": the pods that the API server has for this node. It lists
// them and watches what becomes of them.
//
// Only a PodList with a resource version is a list, and one that would end all that runs is asked
// for a second time. Nothing is said of the pods before the first list was taken, and while the API
// server does not answer they stay as they were. However often a watch ends, is too old or is cut,
// and whatever is listed anew, source.Mux is given whole sets and finds what differs: a pod that is as it was is
// not touched. The feed does not wait for the node's own object, as the kubelet does: no decision
// on a pod depends on it, and a pod that is bound to the node is to run.
//
// A set is made when something has changed and the one before was taken, so that a burst of changes
// is one set. What a set costs is a look at each pod's pointer; only pods that changed are
// compared.
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
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/podspec"
)

// retries are the pauses after lists and watches that failed. An API server that is back is asked
// soon, and nodes do not ask all at once.
func retries() *wait.Backoff {
	return &wait.Backoff{
		Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 8, Cap: 10 * time.Second,
	}
}

// Config says whose pods to follow.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Report receives the pods that are left out or refused. It must not block.
	Report func(source.Problem)
	// Saw takes all pods that the API server has for the node, whenever one changed, and returns
	// those that are to run. It must not block, nor change any.
	Saw func(all []*v1.Pod) []*v1.Pod
	// Running are the pods of the API server that run here, by their UIDs. A list that has none of
	// them is not believed at once. nil: nothing runs.
	Running func() []types.UID
	// Restored has a value when the API server's objects are older than they were: nothing that is
	// known of them holds.
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
		cfg: c, screen: source.NewScreen(c.Report),
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

// follow lists and watches until ctx ends. The first list is taken as it is: it may be of another
// history than the last one.
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

// store is what the reflector keeps up to date. What it is given is the store's own.
type store struct {
	mu      sync.Mutex // guards pods and doubted
	pods    map[types.NamespacedName]*v1.Pod
	doubted bool // a resource version does not say what a pod is
	changed chan struct{}
}

// distrust has the next list taken as it is: it is of another history.
func (s *store) distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubted = true
}

// of lists the pods of a node, of which there are none else unless the API server errs.
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

// replace takes a whole list. Pods that are as they were stay the same values.
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

// put takes a pod that is new or another now.
func (s *store) put(p *v1.Pod) error {
	name := own(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[name] = p
	await.Wake(s.changed)
	return nil
}

// drop takes that a pod is gone.
func (s *store) drop(p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, own(p))
	await.Wake(s.changed)
	return nil
}

// own makes what the reflector gives the store's. Nobody on a node asks who manages which field,
// which is a third of a pod.
func own(p *v1.Pod) types.NamespacedName {
	p.ManagedFields = nil
	return podspec.Name(p)
}
