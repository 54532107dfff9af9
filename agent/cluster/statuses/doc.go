// Package statuses writes the statuses of the node's pods to the API server, and deletes pods that
// should be deleted once nothing of them is left on the node.
//
// The wanted status follows from the newest status of the pod here and the one in the API server
// (status.Merge). The latter is known from delivered pods and from answers. A patch turns one into
// the other; nothing is sent if both are equal, even if another client wrote it, so a restart of the
// agent writes nothing. A patch applies only to one version of the pod: an older patch that arrives late
// changes nothing, and after a request with an unknown outcome the API server is asked. So a reported end
// is never taken back. If another writer, such as another node of the same name, overwrites the
// status, it is written again at once, then at most every 10 s.
//
// If the API server finds a status too large or invalid, it is written without its messages, or without
// the parts that the API server names, at last with its phase and reason only. The log and an event
// say once which parts, and why. The next status is tried as a whole.
//
// A pod is deleted for good when the API server wants it deleted, has its final status, and nothing
// of it runs or is held on the node (podstatus.Change.Cleared). The request names this UID and
// version, so that it neither deletes another pod of the name nor one that an API server restored
// from a backup still wants. The status of a static pod goes to its mirror pod, which only package
// mirror deletes.
package statuses
