package csinodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

const (
	// firstPause and lastPause bound the pauses after failed requests.
	firstPause, lastPause = 50 * time.Millisecond, 10 * time.Second
	// again is how long the objects are believed to be as they were written: nodes may not watch
	// CSINodes.
	again = 5 * time.Minute
	// timeout bounds the requests of one attempt.
	timeout = 30 * time.Second
)

// ReasonRefused is the reason of the node's event about a driver that is not in its CSINode.
const ReasonRefused = "CSIDriverRefused"

// Config says for which node. All fields but Health are required.
type Config struct {
	Client kubernetes.Interface
	// Node returns the node's object as the API server has it; nil: it has none.
	Node func() *v1.Node
	// Drivers returns the registered drivers.
	Drivers func() []csi.Node
	// Changed receives an element when the drivers are others, the node came or went, or the API server
	// was restored from a backup.
	Changed <-chan struct{}
	// Ready is called once the node has a CSINode: only then it is ready. It must not block.
	Ready func()
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
	// Ask has a driver asked for NodeGetInfo. It must not block.
	Ask func(driver string)
	// Left reports whether a driver was registered in this run of the agent, and its socket has gone.
	Left func(driver string) bool
	// HasSocket reports whether there is a socket in the plugin registry of a driver that is not
	// registered.
	HasSocket func(driver string) bool
	// Health returns what a driver says of its storage, if it has said something; nil: the CSINode's
	// status is not written.
	Health func(driver string) ([]storagev1.StorageHealthCondition, bool)
}

// Writer keeps the node's CSINode. Its methods are safe for concurrent use.
type Writer struct {
	cfg      Config
	ready    atomic.Bool
	refusals complaint.Complaint[string] // Run's
	problem  complaint.Complaint[string] // Run's
	started  time.Time
	periods  periods
}

// New returns a Writer for Run.
func New(c Config) *Writer {
	return &Writer{cfg: c, started: time.Now(), periods: newPeriods(c)}
}

// Unready returns why the node is not ready, in the kubelet's words; "": it is. A node that the API
// server has as ready had a CSINode under an earlier agent, and stays ready.
func (w *Writer) Unready() string {
	if w.ready.Load() || isReady(w.cfg.Node()) {
		return ""
	}
	return "CSINode is not yet initialized"
}

func isReady(node *v1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// Run writes what changes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { w.periods.tasks.Run(ctx) })
	pauses, failures := await.Pauses{First: firstPause, Last: lastPause}, 0
	for {
		wait := again
		err := w.write(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && w.refusals.Lasts(): // a user may change the label that is in the way
			wait, failures = lastPause, 0
		case err == nil:
			failures = 0
		default:
			wait = pauses.After(failures)
			failures++
		}
		if w.problem.Changes(complaint.Of(err)) && err != nil {
			klog.FromContext(ctx).Info("The node's CSINode is not written yet", "err", requests.Short(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.cfg.Changed:
		case <-time.After(wait):
		}
	}
}

// write brings the node's metadata and its CSINode in line with the drivers. Without a node there is
// nothing to write.
func (w *Writer) write(ctx context.Context) error {
	node := w.cfg.Node()
	if node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	has, err := w.get(ctx, node)
	if err != nil {
		return fmt.Errorf("read CSINode %s: %w", node.Name, err)
	}
	drivers := w.cfg.Drivers()
	w.periods.follow(drivers)
	c, taken, refused := plan(node, drivers, w.kept(node, has, drivers))
	w.tell(ctx, refused)
	if !c.none() {
		if err := w.patch(ctx, node, c); err != nil {
			return fmt.Errorf("annotate node %s with its CSI drivers: %w", node.Name, err)
		}
	}
	if err := w.put(ctx, has, object(node, has, taken)); err != nil {
		return fmt.Errorf("write CSINode %s: %w", node.Name, err)
	}
	if !w.ready.Swap(true) {
		w.cfg.Ready()
	}
	if err := w.putHealth(ctx, node.Name, taken); err != nil {
		return fmt.Errorf("write the status of CSINode %s: %w", node.Name, err)
	}
	return nil
}

// tell reports drivers that are refused, when that changes.
func (w *Writer) tell(ctx context.Context, refused map[string]error) {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		text += fmt.Sprintf("CSI driver %s is not in the node's CSINode, and no volume of it is scheduled "+
			"here: %v. ", name, refused[name])
	}
	if w.refusals.Begins(text) {
		klog.FromContext(ctx).Error(nil, text)
		w.cfg.Tell(v1.EventTypeWarning, ReasonRefused, text)
	}
}

// patch writes the node's metadata, if the node is still the one that was looked at.
func (w *Writer) patch(ctx context.Context, node *v1.Node, c changes) error {
	var ids any // null removes it
	if c.ids != "" {
		ids = c.ids
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "labels": c.labels, "annotations": map[string]any{annotationIDs: ids},
	}})
	if err != nil {
		return err
	}
	_, err = w.cfg.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, raw,
		metav1.PatchOptions{}, "status")
	return err
}

// get reads the CSINode; nil: there is none.
func (w *Writer) get(ctx context.Context, node *v1.Node) (*storagev1.CSINode, error) {
	has, err := w.cfg.Client.StorageV1().CSINodes().Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case has.DeletionTimestamp != nil:
		return nil, errors.New("it is being deleted")
	}
	return has, nil
}

// put creates the CSINode, or updates one that is otherwise. Another writer's change in between has it
// read again. An id or topology keys of a driver cannot change in place: the driver's entry is removed
// first.
func (w *Writer) put(ctx context.Context, has, wanted *storagev1.CSINode) error {
	api := w.cfg.Client.StorageV1().CSINodes()
	if has == nil {
		_, err := api.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if same(has, wanted) {
		return nil
	}
	entries := wanted.Spec.Drivers
	if first := without(entries, has.Spec.Drivers); len(first) < len(entries) {
		wanted.Spec.Drivers = first
		now, err := api.Update(ctx, wanted, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		wanted = now
		wanted.Spec.Drivers = entries
	}
	_, err := api.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}

func same(a, b *storagev1.CSINode) bool {
	return apiequality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
