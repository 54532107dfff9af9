package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// State is how far a pod is on its way through the agent.
//
//	       Desired           Admitted           Ended
//	none ----------> Deciding -------> Running ----------> Completed
//	  |               |   |               |                    |
//	  |       Refused |   |               | Deleted, Killed    | Deleted
//	  |               v   |               v        Ended       v
//	  |          Rejected |          Terminating ---------> Terminated
//	  |               |   |               |                    |
//	  | Orphaned      '---+---- Removed --+--------------------'
//	  |                   |
//	  |                   v       Gone              Released
//	  '---------------> Removing -------> Releasing ----------> none, or Deciding
//	                                                            if desired again
//
// A pod that is deleted or killed before it ran is terminated like any other: its worker checks
// that an earlier run of the agent left nothing. A pod that never ran and is removed needs no
// worker: it goes from Deciding or Rejected to Releasing. A pod that had ended when it was first
// desired is Running until its worker has seen that.
type State string

// The states of a record.
const (
	// None: there is no record.
	None State = ""
	// Deciding: admission was asked and has not decided; it may have said that the pod waits.
	Deciding State = "Deciding"
	// Rejected: the pod failed admission. It never ran under this record.
	Rejected State = "Rejected"
	// Running: its worker starts it and keeps it running.
	Running State = "Running"
	// Completed: it ended by itself (Succeeded, Failed). Its records stay in the runtime.
	Completed State = "Completed"
	// Terminating: its worker ends it. Its record and its last status stay.
	Terminating State = "Terminating"
	// Terminated: nothing of it runs, and it will not run again.
	Terminated State = "Terminated"
	// Removing: its worker ends it and removes all that is left of it from the node.
	Removing State = "Removing"
	// Releasing: it is gone from the node, and admission releases what it held.
	Releasing State = "Releasing"
)

// Hold says how far admission is with a pod.
type Hold string

// The kinds of Hold.
const (
	// Free: admission knows nothing of the pod.
	Free Hold = ""
	// Held: admission was asked about it, or has recorded something of it before.
	Held Hold = "Held"
	// Returning: Release was asked for and not answered yet.
	Returning Hold = "Returning"
)

// Same reports whether both are versions of one pod: UID, namespace and name identify a pod.
func Same(a, b *v1.Pod) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// Record holds what the agent knows of one pod. The zero Record is that of an unknown pod.
type Record struct {
	State State
	Spec
	// Next is the pod, desired again before it was gone; nil: it is not.
	Next *v1.Pod
	// Hold says how far admission is with it.
	Hold Hold
	// OnNode: something of the pod runs, or the runtime has or may have something of it, also from
	// an earlier run of the agent. Only Gone ends this.
	OnNode bool
	// Orphan: no source has desired the pod; it is only being removed.
	Orphan bool
	// Killed: the node ended the pod (Evicted and the like).
	Killed bool
	// Admitted: the pod was let run; it has what it requests.
	Admitted bool
	// EndedUnseen: the pod's end was reported before a worker could see anything of it: admission
	// refused it, or it had ended when it was first desired.
	EndedUnseen bool
}

// Facts holds what others may know of a record.
type Facts struct {
	Spec
	// Admitted and EndedUnseen are the record's.
	Admitted, EndedUnseen bool
	// Cleared: the pod has ended for good, and neither the node nor admission has anything of it
	// but records; its volumes and its cgroup are gone. If the API server wants it deleted, it may
	// forget the pod once it has the last status.
	Cleared bool
}

func (r Record) facts() Facts {
	return Facts{
		Spec: r.Spec, Admitted: r.Admitted, EndedUnseen: r.EndedUnseen,
		Cleared: r.State == Terminated && r.Hold == Free,
	}
}

// accept returns the spec of an event, which keeps the resources that the pod was allocated.
// resized reports whether it asks for other resources than before.
func (r Record) accept(e Event) (s Spec, resized bool) {
	switch r.State {
	case None, Deciding, Rejected:
		return r.with(e.Pod, e.Runtime.Allocated)
	default:
		own := podspec.ResourcesOf(r.Pod)
		return r.with(e.Pod, &own)
	}
}

// isAnother reports whether the record is of another pod with the same UID.
func (r Record) isAnother(pod *v1.Pod) bool { return r.State != None && !Same(r.Pod, pod) }

// never is called in an undefined state.
func (r Record) never() { panic(fmt.Sprintf("pod: state %q", r.State)) }
