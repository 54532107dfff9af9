package nodes

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// seen is the node as it was last seen at the API server: answers to requests and the watch tell of
// it, in any order, and the newest counts.
type seen struct {
	changed chan struct{} // has a value when the watch told of another node
	present mailbox.Topic // told when the node came or went

	mu   sync.Mutex // guards last
	last *v1.Node   // nil: there is none
}

func newSeen() *seen { return &seen{changed: make(chan struct{}, 1)} }

// get returns what is not to be written to.
func (s *seen) get() (*v1.Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.last != nil
}

// put takes an answer. It returns the node that it takes the place of, if it does.
func (s *seen) put(now *v1.Node) (was *v1.Node, newer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.UID == now.UID {
		order, err := resourceversion.CompareResourceVersion(now.ResourceVersion,
			s.last.ResourceVersion)
		if err == nil && order <= 0 {
			return nil, false
		}
	}
	was, s.last = s.last, now
	if was == nil || was.UID != now.UID {
		s.present.Publish()
	}
	return was, true
}

// forget takes that the node is not there, or that its version means nothing.
func (s *seen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.present.Publish()
	}
	s.last = nil
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
		n.seen.forget() // unless ctx has ended, its versions are of another history
	})
}

func (n *Nodes) own() cache.ListerWatcher {
	me := fields.OneTermEqualSelector("metadata.name", n.cfg.Identity.Name)
	return kubeapi.Selected(n.cfg.Main, n.cfg.Main.CoreV1().Nodes(), me, nil)
}

// saw takes the node that the watch told of.
func (n *Nodes) saw(obj any) {
	now, ok := obj.(*v1.Node)
	if !ok || now.Name != n.cfg.Identity.Name {
		return
	}
	was, newer := n.seen.put(now)
	if !newer {
		return
	}
	if was != nil && was.Spec.Unschedulable != now.Spec.Unschedulable {
		e := node.Schedulable(now.Name, !now.Spec.Unschedulable)
		n.cfg.Tell(e.Type, e.Reason, e.Message)
	}
	await.Wake(n.seen.changed)
}

// Reread takes the node as the API server has it now. Without an answer it stays as it was.
func (n *Nodes) Reread(ctx context.Context) {
	now, err := n.cfg.Main.CoreV1().Nodes().Get(ctx, n.cfg.Identity.Name, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The node was not looked at again", "err", requests.Short(err))
		return
	}
	n.saw(now)
}

func (n *Nodes) deleted(ctx context.Context) {
	klog.FromContext(ctx).Info("The node's object was deleted; it is registered again when the " +
		"agent starts again")
	n.seen.forget()
}
