// Package memory decides on which NUMA nodes a container's memory and huge pages are: the static
// memory manager policy (KEP-1769). It is pure: values in, values out. What is free is worked out
// anew from the blocks that containers hold, every time; there is no running total to go wrong, so
// it does not matter in what order containers came and went, or that a node's memory is a little
// more or less after a reboot.
//
//	Requests  what a container of a Guaranteed pod gets: its memory and huge page limits
//	Hints     the sets of nodes that could give it, for topology's Merge
//	Choose    one Block for each resource, all on the same set of nodes, which Mems
//	          makes into cpuset.mems
//	Reuse     what is left of the blocks of init containers that the pod takes over
//	Usage     the nodes as the state file and the pod resources show them
//
// A node's memory is its total less its huge pages and what is reserved there.
//
// # Groups
//
// The kernel takes memory from any node of cpuset.mems, and nobody knows from which. So the free
// memory of two sets of nodes can be told only if the sets are equal or disjoint. Hence the rule: a
// node that somebody uses alone does not become part of a group of nodes, one in a group is used
// with exactly this group and not alone, until the last block that names it is gone. Blocks of
// several nodes add up within their group. Blocks from elsewhere that break the rule are counted,
// and nothing more is placed on their nodes.
//
// An init container may run on some nodes of a block that containers of its pod have which start
// later. What it has there is lent: a block of size 0, which is in no group.
//
// # Hints
//
// Sets are offered that keep the rule and have, together, enough free of every requested
// resource. What the pod's ended init containers held on exactly this set counts as free. A set is
// preferred if no narrower one could hold the request on the empty machine.
//
// Up to eleven unused nodes all sets are tried. Beyond that it is the narrow ones, a limited
// number, and around each node the narrowest set of the nodes with the most free, so that some set
// is offered whenever one has room.
//
// # Choice
//
// The merged hint is followed if its nodes have room. Intersecting hints, the merge may have cut
// them down to fewer nodes than are needed: then the preferred, else the narrowest, offer is taken
// that contains the hint's nodes. If the hint was preferred and this is not, it is an error. With a
// hint of any node, the best of all offers is taken.
//
// # Where it differs from the kubelet
//
//   - Nodes without memory are never part of a set. The kubelet offers such sets too, though never
//     as preferred, and doubles their number with each such node.
//   - A hint of one node which is in a group is extended to the group, or refused if it was
//     preferred and the group is not. The kubelet takes the node alone, and forgets the group.
//   - What a group holds is counted on its lowest nodes. With the kubelet it depends on the order
//     of releases, which shows when the merge cuts a hint down to a part of a group: one may say
//     that this part is used otherwise where the other one says that it has too little, or takes
//     the group.
//   - A request for 0 bytes makes no block.
//   - In pod scope, huge pages that only init containers ask for count too.
package memory
