package nodes

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// Known is the last known node object of the API server. Nodes keeps it up; others read it. Its methods
// are safe for concurrent use.
type Known struct {
	changed chan struct{} // has a value when the watch delivered another version
	present mailbox.Topic // published when the node came or went
	updated mailbox.Topic // published when it is another version

	mu   sync.Mutex // guards copy
	copy kubeapi.Copy[*v1.Node]
}

// NewKnown returns a Known without a node.
func NewKnown() *Known { return &Known{changed: make(chan struct{}, 1)} }

// Presence is published when the node's object comes or goes.
func (c *Known) Presence() mailbox.Source { return &c.present }

// Updates is published when the node's object is another version, also when it comes or goes.
func (c *Known) Updates() mailbox.Source { return &c.updated }

// Get returns the node, which must not be modified; nil: the API server has none.
func (c *Known) Get() *v1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copy.Get()
}

// put records an answer or a delivery. newer reports whether it is a newer version than before,
// which was was.
func (c *Known) put(now *v1.Node) (was *v1.Node, newer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was = c.copy.Get(); !c.copy.Deliver(now, time.Now()) {
		return nil, false
	}
	if was == nil || was.UID != now.UID {
		c.present.Publish()
	}
	c.updated.Publish()
	return was, true
}

// forget records that the node is not there, or that its version means nothing.
func (c *Known) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copy.Get() != nil {
		c.present.Publish()
		c.updated.Publish()
	}
	c.copy = kubeapi.Copy[*v1.Node]{}
}

// watch follows the node's object until ctx ends.
func (n *Nodes) watch(ctx context.Context) {
	kubeapi.Again(ctx, n.cfg.Again, func(ctx context.Context) {
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: n.own(), ObjectType: &v1.Node{},
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    n.saw,
				UpdateFunc: func(_, now any) { n.saw(now) },
				DeleteFunc: func(any) { n.deleted(ctx) },
			},
		})
		informer.RunWithContext(ctx)
		n.cached.forget() // unless ctx has ended, its versions are of another history
	})
}

func (n *Nodes) own() cache.ListerWatcher {
	me := fields.OneTermEqualSelector("metadata.name", n.cfg.Identity.Name)
	return kubeapi.Selected(n.cfg.Main, n.cfg.Main.CoreV1().Nodes(), me, nil)
}

// saw records a delivered node.
func (n *Nodes) saw(obj any) {
	now, ok := obj.(*v1.Node)
	if !ok || now.Name != n.cfg.Identity.Name {
		return
	}
	was, newer := n.cached.put(now)
	if !newer {
		return
	}
	if was != nil && was.Spec.Unschedulable != now.Spec.Unschedulable {
		e := nodestatus.Schedulable(now.Name, !now.Spec.Unschedulable)
		n.cfg.Tell(e.Type, e.Reason, e.Message)
	}
	await.Wake(n.cached.changed)
}

// Reread gets the node from the API server. Without an answer the known one stays.
func (n *Nodes) Reread(ctx context.Context) {
	now, err := n.cfg.Main.CoreV1().Nodes().Get(ctx, n.cfg.Identity.Name, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The node's object was not read again", "err", requests.Short(err))
		return
	}
	n.saw(now)
}

func (n *Nodes) deleted(ctx context.Context) {
	klog.FromContext(ctx).Info("The node's object was deleted; it is registered again when the " +
		"agent starts again")
	n.cached.forget()
}
