// Package topology is what the agent knows about hardware and how it agrees on a place. It is pure:
// values in, values out.
//
//	Machine   what the hardware is: nodes, sockets, cores, threads, L3 groups, PCI devices
//	NodeSet   a set of NUMA nodes
//	Hint      one placement a provider of a resource can make
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
// These are the answers of the kubelet
// (https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/). They are not computed by
// going through all picks, whose number is the product of the hints of all resources. A preferred
// pick repeats one node set in every resource, so counting for each set the resources that prefer
// it finds all of them in one pass. The others only matter as the node sets they share, and there
// are at most as many of those as there are node sets, however many picks lead to each: they are
// collected resource by resource.
package topology
