package mirror

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

// Config configures the keeper of mirror pods.
type Config struct {
	Client   kubernetes.Interface
	Node     string // its name
	Registry metrics.KubeRegistry
}

// Mirrors keeps the mirror pods of a node.
type Mirrors struct {
	cfg     Config
	planner *Planner
	queue   *requests.Queue[types.NamespacedName]
	count   *metrics.Gauge
}

// New returns a Mirrors that knows no pods.
func New(c Config) (*Mirrors, error) {
	m := &Mirrors{cfg: c, planner: NewPlanner()}
	var s metric.Set
	m.count = s.Gauge("kubelet_mirror_pods", "Mirror pods that the API server has for the node.")
	m.queue = requests.New("keep a mirror pod", m.next)
	return m, s.Register(c.Registry)
}

// Run keeps mirror pods until ctx ends.
func (m *Mirrors) Run(ctx context.Context) error { return m.queue.Run(ctx) }

// Wrote records what was written for a pod of the node. It never blocks.
func (m *Mirrors) Wrote(c podstatus.Change) {
	if name, look := m.planner.Wrote(c); look {
		m.queue.Add(name)
	}
}

// Heard records that every source of pods was heard. It never blocks.
func (m *Mirrors) Heard() { m.add(m.planner.Heard()) }

// Saw records all pods that the API server has for the node. It never blocks.
func (m *Mirrors) Saw(all []*v1.Pod) {
	n := len(all) - len(podspec.WithoutMirrors(all))
	m.count.Set(float64(n))
	m.add(m.planner.Saw(all, time.Now()))
}

func (m *Mirrors) add(names []types.NamespacedName) {
	for _, name := range names {
		m.queue.Add(name)
	}
}

// next sends the next request about a name.
func (m *Mirrors) next(ctx context.Context, name types.NamespacedName) (
	made requests.Verb, again time.Time, err error) {
	r, again := m.planner.Next(name, time.Now())
	if r.Verb == requests.None {
		return requests.None, again, nil
	}
	klog.FromContext(ctx).V(2).Info("Sending a request about a mirror pod", "pod", name,
		"verb", r.Verb)
	got, err := m.request(ctx, name, r)
	if err != nil && noNamespace(err) {
		klog.FromContext(ctx).Info("A mirror pod's namespace does not exist; the static pod runs, and "+
			"the mirror pod is tried again after pauses that grow to 5 minutes", "pod", name,
			"err", requests.Short(err))
	}
	return r.Verb, time.Time{}, m.planner.Answered(name, r, got, err, time.Now())
}

// request sends a request, and returns what the API server then has under the name.
func (m *Mirrors) request(ctx context.Context, name types.NamespacedName, r Request) (*v1.Pod,
	error) {
	pods := m.cfg.Client.CoreV1().Pods(name.Namespace)
	switch r.Verb {
	case requests.Get:
		return pods.Get(ctx, name.Name, metav1.GetOptions{})
	case requests.Create:
		node, err := m.owner(ctx)
		if err != nil {
			return nil, err
		}
		return pods.Create(ctx, of(r.Pod, node), metav1.CreateOptions{})
	case requests.Delete:
		return nil, pods.Delete(ctx, name.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(
				string(r.Pod.UID))})
	default:
		panic(fmt.Sprintf("mirror: verb %q", r.Verb))
	}
}

// owner returns a reference to the Node, which owns mirror pods. Without a Node, or while it is
// being deleted, no mirror pod is created: the API server would refuse it or collect it as garbage.
func (m *Mirrors) owner(ctx context.Context) (o metav1.OwnerReference, err error) {
	// A cached Node is recent enough.
	node, err := m.cfg.Client.CoreV1().Nodes().Get(ctx, m.cfg.Node,
		metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case err != nil:
		return o, fmt.Errorf("get the node to which mirror pods belong: %w", err)
	case node.DeletionTimestamp != nil:
		return o, fmt.Errorf("the node %s, to which mirror pods belong, is being deleted", m.cfg.Node)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		Controller: ptr.To(true)}, nil
}
