// Package topology describes hardware and merges placements. It is pure: values in, values out.
//
//	Machine   the hardware: nodes, sockets, cores, threads, L3 groups, PCI devices
//	NodeSet   a set of NUMA nodes
//	Supply    the sets of nodes from which a provider can meet a request
//	Hint      one such set
//	Merge     one placement for all resources of a container, under a Policy
//
// # Merging
//
// Every provider (CPUs, devices, memory) lists the node sets from which it can serve one resource
// of a container, and says which of them it prefers: those of the least width that could hold the
// request on an empty machine. Merge looks at every way to pick one hint per resource (KEP-693
// calls it a permutation). A pick stands for the nodes that all its hints share. It is preferred
// only if all its hints are preferred and name the same nodes, so that every resource is local to
// every other. Picks without a shared node are dropped.
//
// Of all preferred picks the narrowest wins, and between equally narrow ones that with the lower
// value as a binary number, which favours low node ids. Without a preferred pick, the target width
// is that of the resource which needs the most nodes. Picks of that width come first, then narrower
// ones, the widest of them first, then wider ones, the narrowest first. Without any pick the answer
// is all nodes, not preferred.
//
// A resource without a preference (nil hints) fits every pick. A resource without any placement
// (hints empty but not nil) fits too, but makes every pick not preferred.
//
// The policy decides how the answer is used:
//
//	none              nothing is merged; everything is admitted, anywhere
//	best-effort       the answer is followed, whatever it is
//	restricted        an answer that is not preferred rejects the pod
//	single-numa-node  like restricted, but only preferred hints with one node take part; an answer
//	                  of all nodes (a machine with one node, or no resource has a preference) becomes
//	                  "any node"
//
// With PreferClosest, of equally wide picks the one whose nodes are closer to each other on average
// wins, and only then the one with lower ids.
//
// These are the kubelet's answers
// (https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/). Merge does not compute
// them from all picks, whose number is the product of the hints of all resources. A preferred pick
// repeats one node set in every resource, so counting for each set the resources that prefer it
// finds all of them in one pass.
//
// Of other picks only the shared node sets matter, which a bounded search finds. It first drops
// nodes that some resource does not name at all: they are in no pick, so a node without CPUs or
// without devices costs nothing. Then:
//
//   - If every other resource can cover a hint with a hint around it, that hint is an answer. The
//     best of these is nearly always the best of all.
//   - To prove that, or to improve on it, hints are intersected resource by resource, depth first.
//     A set has a bound before it is cut further: none of its subsets is closer to the target width,
//     or lower than the set's lowest nodes of that number. Sets that cannot beat the best answer so
//     far are dropped, and none is looked at twice.
//
// Up to eight nodes, where the kubelet stops too, the search always ends with the proof. Beyond
// that the number of steps is limited: if the limit ends the search, the answer is still that of a
// pick, but another pick may be better.
package topology
