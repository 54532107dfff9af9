package pod

import (
	v1 "k8s.io/api/core/v1"
)

// State is how far a pod is on its way through the agent.
//
//	       Desired           Admitted           Ended
//	none ----------> Deciding -------> Running ----------> Completed
//	  |               |   |               |                    |
//	  |      Rejected |   |               | Deleted, Killed    | Deleted
//	  |               v   |               v        Ended       v
//	  |          Rejected |          Terminating ---------> Terminated
//	  |               |   |               |                    |
//	  | Orphaned      '---+---- Removed --+--------------------'
//	  |                   |
//	  |                   v       Gone              Released
//	  '---------------> Removing -------> Releasing ----------> none, or Deciding
//	                                                            if desired again
//
// A pod that is deleted or killed before it ran is terminated all the same: its worker sees that
// nothing is left of an earlier run of the agent. One that never ran and is removed goes without
// its worker, from Deciding or Rejected to Releasing. One that had ended when it was first desired
// is Running until its worker has seen that.
type State string

// The states of a record.
const (
	// None: there is no record.
	None State = ""
	// Deciding: admission was asked and has not said yes or no; it may have said that the pod waits.
	Deciding State = "Deciding"
	// Rejected: the pod failed admission. It holds nothing and never ran under this record.
	Rejected State = "Rejected"
	// Running: its worker brings it to run and keeps it running.
	Running State = "Running"
	// Completed: it ended by itself (Succeeded, Failed). Its records stay in the runtime.
	Completed State = "Completed"
	// Terminating: its worker ends it. Its record and its last status stay.
	Terminating State = "Terminating"
	// Terminated: nothing of it runs, and it will not run again.
	Terminated State = "Terminated"
	// Removing: its worker ends it and takes all that is left of it from the node.
	Removing State = "Removing"
	// Releasing: it is gone from the node, and what it held is being given back.
	Releasing State = "Releasing"
)

// Hold is what admission has of a pod.
type Hold string

// The kinds of Hold.
const (
	// Free: admission knows nothing of the pod.
	Free Hold = ""
	// Held: admission was asked about it, or has something recorded of it from before.
	Held Hold = "Held"
	// Returning: Release was asked for and not answered yet.
	Returning Hold = "Returning"
)

// Same reports whether both are versions of one pod: a pod is its UID, namespace and name, whatever
// else changes.
func Same(a, b *v1.Pod) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// Record is what the agent knows of one pod. The zero Record is that of a pod that it does not
// know.
type Record struct {
	State State
	// Pod is the newest spec of the pod that runs or is being ended. Of an orphan it has what the
	// runtime's labels say. Once it was admitted it keeps the resources that it was admitted with.
	Pod *v1.Pod
	// Wanted is the pod as its source has it, if that asks for other resources than Pod; nil: it does
	// not.
	Wanted *v1.Pod
	// Next is the pod, desired again before it was gone; nil: it is not.
	Next *v1.Pod
	// Hold is what admission has of it.
	Hold Hold
	// OnNode: something of the pod runs, or something is or may be left of it in the runtime, also
	// from an earlier run of the agent. Only Gone ends that.
	OnNode bool
	// Orphan: no source has desired the pod; it is only being removed.
	Orphan bool
	// Killed: the node ended the pod (Evicted and its like).
	Killed bool
}
