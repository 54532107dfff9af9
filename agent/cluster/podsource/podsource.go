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
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
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
	Node string
	// Gates are the node's (source.NewScreen).
	Gates manifest.Gates
	// Report receives the pods that are dropped or refused. It must not block.
	Report func(complaint.Problem)
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
	pods   *kubeapi.Kept[*v1.Pod]
}

// New returns the feed.
func New(c Config) *Feed {
	return &Feed{
		cfg: c, screen: source.NewScreen(c.Gates, c.Report), pods: kubeapi.NewKept[*v1.Pod](),
	}
}

// Name implements source.Feed.
func (*Feed) Name() string { return podspec.APISource }

// Run implements source.Feed.
func (f *Feed) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	var following sync.WaitGroup
	following.Go(func() { kubeapi.Again(ctx, f.cfg.Restored, f.follow) })
	defer following.Wait()
	for await.On(ctx, f.pods.Changed()) {
		// There are no pods of other nodes unless the API server errs.
		mine := slices.DeleteFunc(f.pods.All(), func(p *v1.Pod) bool {
			return p.Spec.NodeName != f.cfg.Node
		})
		deliver(f.cfg.Saw(f.screen.Pass(mine)))
	}
	return nil
}

// follow lists and watches until ctx ends. It does not compare versions in its first list with
// known ones: the history may be another.
func (f *Feed) follow(ctx context.Context) {
	f.pods.Distrust()
	mine := fields.OneTermEqualSelector("spec.nodeName", f.cfg.Node)
	all := newPods(f.cfg.Client)
	kept := f.pods.Store()
	checked := kept
	checked.All = func(list []*v1.Pod) error {
		if err := f.believe(ctx, all, list); err != nil {
			return requests.Short(err)
		}
		return kept.All(list)
	}
	cache.NewReflectorWithOptions(kubeapi.Selected(f.cfg.Client, all, mine, nil), &v1.Pod{}, checked,
		cache.ReflectorOptions{Name: "pods of the node", Backoff: retries()},
	).RunWithContext(ctx)
}
