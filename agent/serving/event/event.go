// Package event records events of Kubernetes about pods and about the node, as client-go does: it
// counts equal events, and drops those of an object that has too many. They go to the log, to the
// agent's memory, and to an API server if there is one.
package event

import (
	"context"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/topology/podspec"
)

// maxMessage is the longest message of an event that the API takes, in bytes.
const maxMessage = 1024

// Recorder records the events of one node, their messages in one line. It never blocks.
type Recorder struct {
	node v1.ObjectReference
	// known is the node's object, nil as long as it is not known; a nil function: it never is.
	known  atomic.Pointer[func() *v1.Node]
	all    record.EventBroadcaster
	record record.EventRecorder
	memory *memory
}

// New returns a recorder of a node's events until ctx ends.
func New(ctx context.Context, node string) *Recorder {
	kinds := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(kinds))
	all := record.NewBroadcaster(record.WithContext(ctx))
	r := &Recorder{
		all: all,
		node: v1.ObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node),
		},
		record: all.NewRecorder(kinds, v1.EventSource{Component: "kubelet", Host: node}),
		memory: newMemory(),
	}
	all.StartRecordingToSink(r.memory)
	return r
}

// Send also sends events from now on to a sink, which has counts of its own. A sink that is slow or
// does not answer misses events, and holds up nothing else.
func (r *Recorder) Send(sink record.EventSink) { r.all.StartRecordingToSink(sink) }

// Pod records what happened to a pod. An event of a static pod names the pod's own UID: the mirror pod
// has that in an annotation, by which kubectl finds the events.
func (r *Recorder) Pod(pod *v1.Pod, eventType, reason, message string) {
	r.Annotated(pod, nil, eventType, reason, message)
}

// Annotated is Pod for an event with annotations, whose message may end with a space, as some of the
// kubelet's do.
func (r *Recorder) Annotated(pod *v1.Pod, annotations map[string]string,
	eventType, reason, message string) {
	words, spaced := strings.CutSuffix(message, " ")
	if message = oneline.Cut(words, maxMessage-1); spaced {
		message += " "
	}
	klog.Background().V(1).Info("Event", "pod", klog.KObj(pod), "type", eventType,
		"reason", reason, "message", message)
	r.record.AnnotatedEventf(pod, annotations, eventType, reason, "%s", message)
}

// About records what happened to another object than a pod, or to a pod.
func (r *Recorder) About(object runtime.Object, eventType, reason, message string) {
	message = oneline.Cut(message, maxMessage)
	name := klog.ObjectRef{}
	if of, ok := object.(klog.KMetadata); ok {
		name = klog.KObj(of)
	}
	klog.Background().V(1).Info("Event", "object", name, "type", eventType,
		"reason", reason, "message", message)
	r.record.Event(object, eventType, reason, message)
}

// Container records what happened to a container of a pod.
func (r *Recorder) Container(of podspec.Ref, eventType, reason, message string) {
	message = oneline.Cut(message, maxMessage)
	klog.Background().V(1).Info("Event", "pod", klog.KObj(of.Pod), "container", of.Container,
		"type", eventType, "reason", reason, "message", message)
	about := &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: of.Pod.Namespace, Name: of.Pod.Name,
		UID: of.Pod.UID, ResourceVersion: of.Pod.ResourceVersion, FieldPath: of.FieldPath(),
	}
	r.record.Event(about, eventType, reason, message)
}

// Follow sets the function that returns the node's object, nil while it is not known. Once it is,
// events of the node carry its UID; before, its name stands in for the UID. node must not block.
func (r *Recorder) Follow(node func() *v1.Node) { r.known.Store(&node) }

// OnNode records what happened to the node.
func (r *Recorder) OnNode(eventType, reason, message string) {
	message = oneline.Cut(message, maxMessage)
	klog.Background().V(1).Info("Event", "node", r.node.Name, "type", eventType,
		"reason", reason, "message", message)
	about := r.node
	if known := r.known.Load(); known != nil {
		if node := (*known)(); node != nil && node.UID != "" {
			about.UID = node.UID
		}
	}
	r.record.Event(&about, eventType, reason, message)
}

// List returns the remembered events, the oldest first.
func (r *Recorder) List() []v1.Event { return r.memory.list() }

// Route lists them as a v1.EventList.
func (r *Recorder) Route() route.Route {
	return route.JSON("/events", func() any {
		list := v1.EventList{Items: r.List()}
		list.Kind, list.APIVersion = "EventList", "v1"
		return list
	})
}
