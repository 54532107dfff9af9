package decide

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
)

// Handler is one check that a pod has to pass before resources are looked at. It is pure; nil
// means that the pod passes. Pods that run already are not checked.
type Handler func(Attempt) *Refusal

// Attempt has what a handler looks at.
type Attempt struct {
	Demand
	// Node is the node's object, whose labels, taints and conditions count; nil: it is not known.
	Node *v1.Node
	// State is the node's state now.
	State nodestatus.State
	// CPUs is the node's static CPU policy; nil: containers get no CPUs of their own.
	CPUs *cpumanager.Static
	// Others iterates over what the other pods have of the node; nil: none is known.
	Others iter.Seq[*allocation.Entry]
}

// Refusal is why a pod does not pass a handler, in the words of its status.
type Refusal struct {
	Reason, Message string
	// Short is the counted resource that the pod lacks; "": it is refused for another reason.
	Short v1.ResourceName
	// Wait: the pod may pass later. It is checked again when the queue is poked, and rejected at
	// its deadline. Meanwhile it has nothing of the node.
	Wait bool
	// Stale says what is worth reading again before the pod is refused.
	Stale Stale
	// Late: a lack of counted resources is reported before this refusal. A critical pod has no such
	// lack: others make way for it.
	Late bool
}

// refused asks the handlers.
func (s *Snapshot) refused(r *Request) *Refusal {
	a := Attempt{
		Demand: r.Demand, Node: s.Node, State: s.State, CPUs: s.Hardware.CPUs,
		Others: s.others(r.In),
	}
	for _, h := range s.Handlers {
		if refusal := h(a); refusal != nil {
			return refusal
		}
	}
	return nil
}

// others are the entries of all pods but one.
func (s *Snapshot) others(but types.UID) iter.Seq[*allocation.Entry] {
	return func(yield func(*allocation.Entry) bool) {
		for uid, e := range s.Ledger.All() {
			if uid != but && !yield(e) {
				return
			}
		}
	}
}

// orShort returns the refusal, or instead the counted resources that the pod lacks in the room, if
// these are reported first. A pod that may pass later waits for them afterwards.
func (r *Refusal) orShort(room allocation.Room, of *Request) *Refusal {
	if !r.Late || r.Wait || of.Rank.Critical {
		return r
	}
	short := room.Shortages(of.Pod)
	if len(short) == 0 {
		return r
	}
	return &Refusal{Reason: short[0].Reason(), Message: short[0].Message(), Short: short[0].Resource}
}
