// Package topology is what the agent knows about hardware and how it agrees on a place. It is pure:
// values in, values out.
//
//	Machine   what the hardware is: nodes, sockets, cores, threads, L3 groups, PCI devices
//	NodeSet   a set of NUMA nodes
//	Supply    from which sets of nodes a provider can meet a request
//	Hint      one of them
//	Merge     one placement for all resources of a container, under a Policy
//
// # Merging
//
// Every provider (CPUs, devices, memory) lists the node sets from which it can serve one resource
// of a container, and says which of them are preferred: no smaller set could hold the request even
// on an empty machine. Merge looks at every way to pick one hint per resource (KEP-693 calls it a
// permutation). Such a pick stands for the nodes that all its hints share, and it is preferred only
// if all its hints are preferred and all name the same nodes, so that every resource can be local
// to every other one. Picks without a shared node are dropped.
//
// Of all preferred picks the narrowest wins, and between equally narrow ones that with the lower
// value as a binary number, which favours low node ids. Without a preferred pick, the width to
// aim at is that of the resource which needs the most nodes. Picks of that width come first,
// then narrower ones, the widest of them first, then wider ones, the narrowest first. Without any
// pick at all, the answer is all nodes, not preferred.
//
// A resource without a preference (nil hints) goes along with every pick. A resource without any
// placement (hints empty but not nil) goes along too, and makes every pick not preferred.
//
// The policy decides what becomes of the answer:
//
//	none              nothing is merged; everything is admitted, anywhere
//	best-effort       the answer is followed, whatever it is
//	restricted        an answer that is not preferred rejects the pod
//	single-numa-node  like restricted, and only preferred hints of one node take part; an answer
//	                  of all nodes (a machine with one node, or nobody has a preference) is
//	                  turned into "any node"
//
// With PreferClosest, of equally wide picks the one whose nodes are closer to each other on average
// wins, whatever the ids; these decide between equally close ones.
//
// These are the answers of the kubelet
// (https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/). They are not computed by
// going through all picks, whose number is the product of the hints of all resources. A preferred
// pick repeats one node set in every resource, so counting for each set the resources that prefer
// it finds all of them in one pass.
//
// The others only matter as the node sets that they share, and are searched with a bound. Nodes
// that some resource does not name at all are dropped first: they are in no pick, and a node
// without CPUs, or without devices, costs nothing. Then:
//
//   - a hint that every other resource can cover with a hint around it is an answer as it is. The
//     best of these is nearly always the best of all;
//   - to prove that, or to improve on it, hints are intersected resource by resource, depth first.
//     What a set can still come to is known before it is cut further: none of its subsets is closer
//     to the width aimed at, nor lower than its own lowest nodes of that number. Sets that cannot
//     beat the best answer so far are dropped; none is looked at twice.
//
// Up to eight nodes, where the kubelet stops as well, this always ends with the proof. Beyond that
// the number of steps is limited: where hints are so many and so tangled that the limit ends the
// search, the answer is still that of a pick, but another may be better.
package topology
