// Package hollow runs many nodes in one process without hardware. The deciding parts are the
// agent's; machines are data, devices are invented, and containers run nothing. Authors of
// schedulers can test the effect of their decisions at scale.
//
//	pods of the node (watch) -> source -> syncLoop -> admission -> worker -> memory
//	Node, Lease, statuses of pods, NodeResourceTopology <- the same facts
//
// agent.HollowKind joins the domains of a node that need no host; this package gives them a
// runtime, which is a map, and the devices of a machine. All nodes share the client of the API
// server, and nodes of one shape share the machine and its devices.
//
// Each node's state file, below the root directory, holds what its pods hold. The runtime is in
// memory. A container has the resources that a resize allocates at once, or when its worker starts it
// anew, if its resize policy wants that. After a restart of the process pods keep their CPUs and devices,
// and their containers start again, as on a machine whose runtime lost everything.
package hollow
