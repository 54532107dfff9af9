// Package nodes registers the machine as a node of the cluster, renews its lease, and writes its
// status, which agent/node/nodestatus makes of facts.
//
// A changed status is written at once, an unchanged one when the report period is over. It is
// written on top of what the API server has, which is watched, so that changes of others stay. A
// node whose object is deleted comes back when the agent starts again, as with the kubelet; if
// another client creates the object, it is written to.
package nodes

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/internal/await"
)

// Config identifies the node and says what is known of it.
type Config struct {
	// Main watches the node's object. Heartbeats, whose requests have a deadline, writes the object
	// and its lease.
	Main, Heartbeats kubernetes.Interface
	Identity         Identity
	// Known is kept up to date; nil: a new one.
	Known *Known
	// Register is set if the node is created when there is none; else it is awaited.
	Register bool
	// OnExistsOnly: a node that may not create its object is not registered, even if there is one
	// (KubeletRegistrationGetOnExistsOnly).
	OnExistsOnly bool
	// Fresh: no earlier run on this machine has left anything, so that amounts of extended resources in
	// an object that is there are of another installation: they become 0, as with the kubelet.
	Fresh   bool
	Periods Periods
	// Facts returns what the status is made of. Changed has a value when that may have changed.
	Facts   func() nodestatus.Facts
	Changed <-chan struct{}
	// Wrote is called with the facts of the status that the API server has.
	Wrote func(nodestatus.Facts)
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
	// Unanswered is called when the API server did not answer, Restored when what it has is older
	// than before.
	Unanswered, Restored func()
	// Again has a value after Restored.
	Again <-chan struct{}
}

// Periods holds nodeStatusUpdateFrequency, nodeStatusReportFrequency and nodeLeaseDurationSeconds.
type Periods struct{ Update, Report, Lease time.Duration }

const (
	// tries is the number of attempts to write a status in one period.
	tries = 5
	// firstPause and lastPause bound the pauses between attempts to register.
	firstPause, lastPause = 100 * time.Millisecond, 7 * time.Second
)

// Nodes maintains one node.
type Nodes struct {
	cfg    Config
	cached *Known
	// pace bounds how often a status is written that changes without end.
	pace *rate.Limiter

	due      time.Time    // when a status is reported that did not change; Run's
	conflict nameConflict // who else writes; Run's
	renewed  string       // the lease's version; the lease's
}

// New returns a node that is not registered.
func New(c Config) *Nodes {
	if c.Known == nil {
		c.Known = NewKnown()
	}
	return &Nodes{
		cfg: c, cached: c.Known, pace: rate.NewLimiter(1, 20),
		conflict: newNameConflict(c.Periods.Update),
	}
}

// Node returns the last known node object of the API server; nil: the node is not registered.
func (n *Nodes) Node() *v1.Node {
	return n.cached.Get()
}

// Run registers the node, and maintains it until ctx ends.
func (n *Nodes) Run(ctx context.Context) error {
	n.cfg.Tell(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if !n.register(ctx) {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { n.watch(ctx); return nil })
	g.Go(func() error { n.live(ctx); return nil })
	g.Go(func() error { n.keep(ctx); return nil })
	return g.Wait()
}

// register tries until the node is registered; false: ctx has ended.
func (n *Nodes) register(ctx context.Context) bool {
	pauses := await.Pauses{First: firstPause, Last: lastPause}
	for tries := 0; ; tries++ {
		facts := n.cfg.Facts()
		registered, err := n.attempt(ctx, facts)
		if err == nil {
			klog.FromContext(ctx).Info("The node is registered", "node", registered.Name,
				"nodeUID", registered.UID)
			n.cached.put(registered)
			return true
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("The node is not registered yet", "err",
				requests.Short(err))
			n.failed(err)
		}
		if !await.For(ctx, pauses.After(tries)) {
			return false
		}
	}
}

// attempt creates the node with its status, or updates an existing one.
func (n *Nodes) attempt(ctx context.Context, facts nodestatus.Facts) (*v1.Node, error) {
	nodes, made := n.cfg.Heartbeats.CoreV1().Nodes(), Object(n.cfg.Identity)
	if !n.cfg.Register {
		return nodes.Get(ctx, made.Name, metav1.GetOptions{})
	}
	made.Status = nodestatus.Status(v1.NodeStatus{}, facts, metav1.Now())
	advertise(made, facts)
	created, refused := nodes.Create(ctx, made, metav1.CreateOptions{})
	if refused == nil {
		n.wrote(v1.NodeStatus{}, created.Status, facts)
		return created, nil
	}
	forbidden := apierrors.IsForbidden(refused) && !n.cfg.OnExistsOnly
	if !apierrors.IsAlreadyExists(refused) && !forbidden {
		return nil, refused
	}
	existing, err := nodes.Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		return nil, errors.Join(refused, err)
	}
	wanted := reconcile(existing, made)
	if n.cfg.Fresh {
		withoutExtended(&wanted.Status)
	}
	if apiequality.Semantic.DeepEqual(existing, wanted) {
		return existing, nil
	}
	return n.patch(ctx, existing, wanted)
}

// keep writes the status whenever that is due.
func (n *Nodes) keep(ctx context.Context) {
	tick := time.Tick(n.cfg.Periods.Update)
	for {
		n.sync(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-n.cfg.Changed:
		case <-n.cached.changed:
		}
	}
}

// sync writes the status if there is a reason to. The first try is based on what is known, the
// others on what the API server has.
func (n *Nodes) sync(ctx context.Context) {
	for try := range tries {
		last := n.cached.Get()
		if last == nil {
			return // it was deleted
		}
		var err error
		if try > 0 {
			last, err = n.cfg.Heartbeats.CoreV1().Nodes().Get(ctx, n.cfg.Identity.Name,
				metav1.GetOptions{})
		}
		if err == nil {
			err = n.write(ctx, last)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Info("The node's status was not written", "try", try+1, "err",
			requests.Short(err))
		if n.failed(err); apierrors.IsNotFound(err) {
			return
		}
	}
}

// write writes the status, and the labels, that follow from the object's.
func (n *Nodes) write(ctx context.Context, last *v1.Node) error {
	facts := n.cfg.Facts()
	next := last.DeepCopy()
	next.Status = nodestatus.Status(last.Status, facts, metav1.Now())
	changed := advertise(next, facts)
	changed = nodestatus.Changed(last.Status, next.Status) || changed
	if !changed && time.Now().Before(n.due) {
		return nil
	}
	if message := n.conflict.sees(n.cfg.Identity.Name, last.Status, next.Status); message != "" {
		klog.FromContext(ctx).Error(nil, message)
		n.cfg.Tell(v1.EventTypeWarning, ReasonNameShared, message)
	}
	if changed && n.conflict.waits(next.Status) {
		return nil // Periods.Update tells when to look again
	}
	if err := n.pace.Wait(ctx); err != nil {
		return err
	}
	updated, err := n.patch(ctx, last, next)
	if err != nil {
		return err
	}
	n.due = time.Now().Add(n.cfg.Periods.Report)
	if changed { // so that nodes that changed together do not report together from then on
		n.due = n.due.Add(time.Duration((rand.Float64() - 0.5) * float64(n.cfg.Periods.Report)))
	}
	n.wrote(last.Status, updated.Status, facts)
	n.compare(updated.ResourceVersion, last.ResourceVersion)
	n.cached.put(updated)
	return nil
}

// wrote records events of what changed.
func (n *Nodes) wrote(old, now v1.NodeStatus, facts nodestatus.Facts) {
	if n.conflict.wrote(now) { // no boot is in the life of an agent
		old.NodeInfo.BootID = now.NodeInfo.BootID
	}
	for _, e := range nodestatus.Events(n.cfg.Identity.Name, old, now) {
		n.cfg.Tell(e.Type, e.Reason, e.Message)
	}
	n.cfg.Wrote(facts)
}

// failed reports it if the API server did not answer a request.
func (n *Nodes) failed(err error) {
	if answer := apierrors.APIStatus(nil); !errors.As(err, &answer) {
		n.cfg.Unanswered()
	}
}
