// Package memory decides which NUMA nodes hold a container's memory and huge pages: the static
// memory manager policy (KEP-1769). It is pure: values in, values out. It computes free memory from
// the blocks that containers hold, every time, and keeps no running total that could go wrong. So
// it does not matter in what order containers came and went, or whether a node's memory changes
// slightly with a reboot.
//
//	Requests  a container's memory and huge page limits, for Guaranteed pods
//	Supply    the sets of nodes that can hold them, for topology's Merge
//	Choose    one Block for each resource, all on the same set of nodes, which Mems
//	          turns into cpuset.mems
//	Reuse     the blocks of init containers that are left after the pod reuses them
//	Usage     the nodes as the state file and the pod resources show them
//
// A node's allocatable memory is its total minus its huge pages and the reserved memory.
//
// # Groups
//
// The kernel takes memory from any node of cpuset.mems; which one is not known here. So the free
// memory of two sets of nodes is only known if the sets are equal or disjoint. Hence the rule: a
// node that is used alone does not join a group of nodes, and a node in a group is used only with
// exactly this group, until the last block that names it is gone. Blocks with several nodes add up
// within their group. Foreign blocks that break the rule are counted, and nothing more is placed on
// their nodes.
//
// An init container may run on some nodes of a block of a later container of its pod. Its part is
// lent: a block of size 0, which belongs to no group.
//
// # Hints
//
// Offered sets keep the rule and together have enough free of every requested resource. What the
// pod's ended init containers held on exactly this set counts as free. A set is preferred if no
// narrower one could hold the request on the empty machine.
//
// Up to eleven unused nodes all sets are tried. Beyond that, a limited number of narrow ones are
// tried, and around each node the narrowest set built from the nodes with the most free, so that
// some set is offered whenever one has room.
//
// # Choice
//
// Choose follows the merged hint if its nodes have room. By intersecting hints, the merge may have
// reduced them to fewer nodes than needed: then Choose takes the preferred, or else the narrowest,
// offer that contains the hint's nodes. If the hint was preferred and this offer is not, it is an
// error. With a hint of any node, it takes the best of all offers.
//
// # Differences to the kubelet
//
//   - Nodes without memory are never part of a set. The kubelet offers such sets too, though never
//     as preferred, and doubles their number with each such node.
//   - A hint of one node which is in a group is extended to the group, or refused if it was
//     preferred and the group is not. The kubelet takes the node alone, and forgets the group.
//   - What a group holds is counted on its lowest nodes. With the kubelet it depends on the order
//     of releases. This shows if the merge reduces a hint to a part of a group: one agent may report
//     a conflict of groups where the other reports too little memory, or takes the group.
//   - A request for 0 bytes makes no block.
//   - In pod scope, huge pages that only init containers ask for count too.
package memory
