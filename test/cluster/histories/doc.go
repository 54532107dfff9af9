// Package histories records what is seen of pods on a node while they live, and compares the
// records of two nodes.
//
// A record has for each field of a pod the values that the field had, one after the other: of its
// status as a watcher sees it, its events, the calls to the runtime about it. An agent may coalesce
// statuses: who looks away for a moment misses what was shown for a moment. So two records are
// alike if they differ in values only that were shown shortly, and that agree in everything else:
//
//	numalet  Pending -----------------> Running -> Succeeded
//	kubelet  Pending -> (ContainerCreating 40ms) -> Running -> Succeeded
//
// Not alike are records with another order, with another end, with a value that the other agent
// never shows of any pod, and with a way forth and back that the other one does not go.
package histories
