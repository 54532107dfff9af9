// Package schedulers has the same pods sent to nodes of different shape by the scheduler of
// Kubernetes and by one that reads what numalet writes of its NUMA nodes, and counts the pods that
// the nodes reject. `make schedulers` runs it.
package schedulers
