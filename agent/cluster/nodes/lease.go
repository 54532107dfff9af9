package nodes

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/oneline"
)

// renewals is the number of times that a lease is renewed in its duration.
const renewals = 4

var errNoNode = errors.New("the node is not registered; its lease waits")

// live renews the lease while the node exists: without the node, its lease is deleted.
func (n *Nodes) live(ctx context.Context) {
	kubeapi.Again(ctx, mailbox.Subscribe(&n.cached.present), func(ctx context.Context) {
		if n.cached.Get() != nil {
			n.newLease().Run(ctx)
		}
	})
}

// newLease returns the controller of the node's lease, which says that the node lives.
func (n *Nodes) newLease() lease.Controller {
	seconds := int32(n.cfg.Periods.Lease / time.Second)
	return lease.NewController(clock.RealClock{}, n.cfg.Heartbeats, n.cfg.Identity.Name, seconds,
		n.cfg.Unanswered, n.cfg.Periods.Lease/renewals, n.cfg.Identity.Name,
		v1.NamespaceNodeLease, n.prepare)
}

// prepare completes a lease before it is created or renewed: the node owns and holds it, whatever
// others wrote there. The versions of a lease grow with each renewal; a smaller one comes from
// another history.
func (n *Nodes) prepare(l *coordinationv1.Lease) error {
	last := n.cached.Get()
	if last == nil {
		return errNoNode
	}
	if len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: last.Name, UID: last.UID,
		}}
	}
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder != last.Name && holder != "" {
		klog.Background().Info("Somebody else holds the node's lease; it is renewed with the node's name",
			"holder", oneline.Of(holder), "node", last.Name)
	}
	l.Spec.HolderIdentity = &last.Name
	l.Spec.LeaseDurationSeconds = ptr.To(int32(n.cfg.Periods.Lease / time.Second))
	n.compare(l.ResourceVersion, n.renewed)
	n.renewed = l.ResourceVersion
	return nil
}

// compare reports that the API server was restored from a backup, if an object, the lease or the
// node, is older than before.
func (n *Nodes) compare(now, before string) {
	if kubeapi.Older(now, before) {
		klog.Background().Info("The API server's objects are older than they were: it was restored " +
			"from a backup")
		n.cfg.Restored()
	}
}
