// Package event records events of Kubernetes about pods and about the node. Without an API server
// the log is where they go.
package event

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Recorder records the events of one node. It never blocks.
type Recorder struct{ Node string } // its name

// Pod records what happened to a pod.
func (r Recorder) Pod(pod *v1.Pod, eventType, reason, message string) {
	klog.Background().V(1).Info("Event", "pod", klog.KObj(pod), "type", eventType,
		"reason", reason, "message", message)
}

// OnNode records what happened to the node.
func (r Recorder) OnNode(eventType, reason, message string) {
	klog.Background().V(1).Info("Event", "node", r.Node, "type", eventType,
		"reason", reason, "message", message)
}
