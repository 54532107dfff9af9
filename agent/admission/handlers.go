package admission

import v1 "k8s.io/api/core/v1"

// Handler is one check that a pod has to pass before resources are looked at. It is pure; nil
// means that the pod passes. Pods that run already are not checked.
type Handler func(Attempt) *Refusal

// Attempt is what a handler looks at.
type Attempt struct {
	Pod *v1.Pod
	// Conditions are the node's now; nil: they are not known.
	Conditions []v1.NodeCondition
}

// Refusal is why a pod does not pass a handler, in the words of its status.
type Refusal struct {
	Reason, Message string
	// Wait: the pod may pass later. It is checked again when the queue is poked, and rejected at
	// its deadline. Meanwhile it has nothing of the node.
	Wait bool
}

// refused asks the handlers.
func (s *Snapshot) refused(pod *v1.Pod) *Refusal {
	for _, h := range s.handlers {
		if r := h(Attempt{Pod: pod, Conditions: s.conditions}); r != nil {
			return r
		}
	}
	return nil
}
