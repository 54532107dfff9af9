// Package histories records what watchers see of a node's pods, and compares the records of two
// nodes.
//
// For each field of a pod a record has the values that the field had, in order: of its status as a
// watcher sees it, its events, the calls to the runtime about it. An agent may coalesce statuses, so
// a watcher can miss a short value. Two records are alike if they differ only in values that were
// shown shortly:
//
//	numalet  Pending -----------------> Running -> Succeeded
//	kubelet  Pending -> (ContainerCreating 40ms) -> Running -> Succeeded
//
// Records differ if they have another order, another end, a value that the other agent never shows
// of any pod, or a way back and forth that the other one does not take.
package histories
