package nrt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

const (
	// gather is the time in which several changes share one write.
	gather = 50 * time.Millisecond
	// burst objects may be written at once, and then one in each pace.
	burst = 10
	pace  = time.Second
	// firstPause and lastPause bound the pauses after failed writes.
	firstPause, lastPause = 5 * time.Second, 5 * time.Minute
	// timeout bounds a request.
	timeout = 30 * time.Second
)

// resources is the API path of the objects.
const resources = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

// At returns a Config.Apply for an API server.
func At(client kubernetes.Interface) func(context.Context, string, []byte) error {
	return func(ctx context.Context, name string, object []byte) error {
		return client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).
			AbsPath(resources, name).Param("fieldManager", "numalet").Param("force", "true").
			SetHeader("Accept", "application/json").Body(object).Do(ctx).Error()
	}
}

// Config says whose object it is, and what it contains.
type Config struct {
	// Apply stores the object in the API server, whatever it has; see At.
	Apply func(ctx context.Context, name string, object []byte) error
	// Node returns the node as the API server has it; nil: there is none.
	Node func() *v1.Node
	// Facts returns the facts for the object.
	Facts func() Facts
	// Changed receives an element when the facts may have changed, or the node came or went.
	Changed <-chan struct{}
	// Again receives an element when the API server may have an older object than the one written.
	Again <-chan struct{}
	// Period is how often an unchanged object is written again, in case another client changed it.
	Period time.Duration
}

// Writer maintains the node's NodeResourceTopology.
type Writer struct {
	cfg   Config
	limit *rate.Limiter

	// Run owns the fields below.
	written []byte                      // nil: none was, or it may have changed since
	wrong   complaint.Complaint[string] // with the last attempt
	pause   time.Duration
}

// New returns a Writer that has written nothing.
func New(c Config) *Writer {
	return &Writer{cfg: c, limit: rate.NewLimiter(rate.Every(pace), burst)}
}

// Run writes the object whenever it changes, until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			w.written = nil
		case <-w.cfg.Again:
			w.written = nil
		case <-w.cfg.Changed:
			if w.pause > 0 {
				continue // it is due when the pause ends
			}
		}
		await.For(ctx, gather)
		if next := w.sync(ctx); next > 0 {
			due.Reset(next)
		}
	}
}

// sync writes the object if it differs from the one written. It returns the time until the next
// write of an unchanged object; 0: as before.
func (w *Writer) sync(ctx context.Context) time.Duration {
	node := w.cfg.Node()
	if node == nil {
		w.written = nil // its object is deleted with it
		return 0
	}
	if bytes.Equal(w.object(node), w.written) {
		return 0
	}
	if err := w.limit.Wait(ctx); err != nil {
		return lastPause // ctx has ended
	}
	text := w.object(node) // it may have changed meanwhile
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := w.cfg.Apply(asked, node.Name, text); err != nil {
		return w.failed(ctx, err)
	}
	if w.wrong.Changes("") {
		klog.FromContext(ctx).Info("The node's NodeResourceTopology is written again")
	}
	w.written, w.pause = text, 0
	return w.cfg.Period
}

func (w *Writer) object(node *v1.Node) []byte {
	text, err := json.Marshal(Object(node, w.cfg.Facts()))
	if err != nil {
		panic(err) // its types can be encoded as JSON
	}
	return text
}

// failed records that the object could not be written, and returns the time until the next try.
func (w *Writer) failed(ctx context.Context, err error) time.Duration {
	w.written = nil
	w.pause = await.Pauses{First: firstPause, Last: lastPause}.Next(w.pause)
	why := explained(err)
	if w.wrong.Changes(why) {
		klog.FromContext(ctx).Info("The node's NodeResourceTopology is not written", "why", why)
	}
	return w.pause
}

// explained says why the object could not be written, and what to do.
func explained(err error) string {
	group := v1alpha2.SchemeGroupVersion
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the cluster has no kind NodeResourceTopology of %s; schedulers that want "+
			"it bring it as a CustomResourceDefinition", group)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v; give the group system:nodes the verbs create and patch on "+
			"noderesourcetopologies.%s", err, group.Group)
	}
	return err.Error()
}
