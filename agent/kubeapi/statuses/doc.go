// Package statuses has the API server know the statuses of the node's pods, and deletes the pods
// that are to be deleted when nothing of them is left on the node.
//
// What is to be there follows from the newest status of the pod here and what the API server has
// (status.Merge), and what the API server has is known from the pods that it delivers and from its
// answers. One patch brings the one to the other; nothing is sent where both are the same, whoever
// wrote it, so that a restart of the agent writes nothing. A patch holds for one version of the pod
// only: an older one that comes late changes nothing, and a request of which nobody knows what came
// is followed by a look. So an end that was told is never taken back. Whom somebody else contradicts,
// such as another node of the same name, repeats itself at once and then each 10 s, not endlessly.
//
// A pod is deleted for good when the API server wants it deleted, has its last status, and nothing
// of it runs or is held on the node (podstatus.Change.Cleared); this UID and version of it, so that
// neither another pod of that name is meant nor one that an API server put back to an earlier state
// wants to keep. The status of a static pod goes to its mirror pod,
// which is deleted by package mirror alone.
package statuses
