// Package hollow is many nodes in one process without hardware: what decides is that of an agent,
// and what is decided on are machines that are data, invented devices and containers that run
// nothing. Authors of schedulers try with it what becomes of their choices at scale.
//
//	pods of the node (watch) -> source -> syncLoop -> admission -> worker -> memory
//	Node, Lease, statuses of pods, NodeResourceTopology <- the same facts
//
// Of a node the parts are joined here a second time, beside agent/join.go: those that need a host
// (sockets, cgroups, volumes, probes, logs) are left out, and the runtime is a map. What all nodes
// share is the client of the API server, and those of one shape the machine and what it offers.
//
// What pods hold is in the state file of each node, below the root directory. The runtime's side is
// in memory: after a restart pods keep their CPUs and devices, and their containers begin anew, as
// on a machine whose runtime lost everything.
package hollow
