// Package cpumanager decides which CPUs a container runs on. It is pure: the caller keeps the
// assignments and writes them to cgroups; here is what they should be.
//
//	Exclusive, PodExclusive   how many CPUs of its own a container (or pod) gets
//	Reserved                  which CPUs are kept for the system
//	Static.Free               which CPUs can be given out
//	Static.Supply             from which NUMA nodes a request could be served
//	Static.Choose             which CPUs it gets
//	Static.Shared             where all the other containers run
//	Static.CheckAlignment     whether whole cores are what a request fails on
//	Static.CheckShared        whether any CPU is left to share
//	Static.Isolating, For     which CPUs are only for pods that ask for them
//	Static.Padded             how many CPUs a request is that wants whole cores
//	Plan                      which running containers have another CPU set than they should
//
// # Who gets CPUs of its own
//
// A container of a Guaranteed pod that asks for a whole number of CPUs. All others share the CPUs
// that are left, the reserved ones included: these are kept from being given out, not from being
// used. This is the kubelet's static policy
// (https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/).
//
// # Which nodes: Hints
//
// Every set of NUMA nodes with room for the request is a hint. It is preferred when it is as small
// as can be, judged by all CPUs of the machine: a set of two is not preferred merely because one
// node is too full today. CPUs that earlier init containers of the pod leave behind (reusable) must
// all be inside, or they would lie idle until the pod ends.
//
// Nodes without CPUs are in no hint, as with the kubelet: they add nothing to a set but would
// double the number of sets. A device on such a node therefore shares no node with any CPU;
// restricted and single-numa-node reject that container, best-effort places it anywhere.
//
// The number of sets doubles with each node. With up to 11 nodes all of them are tried, which are
// all answers the kubelet can give. With more, sets are tried by increasing width up to a limit
// (all pairs of 64 nodes), and from there on, for each node, the narrowest set around it that has
// room, made of the nodes with the most CPUs available. So no node is missed that can be part
// of an answer, and no narrower answer for it exists.
//
// # Which CPUs: Choose
//
// The machine is a tree: sockets, their nodes (or nodes, their sockets: the level with fewer
// members is the outer one), their last-level caches, their cores, their threads. A request takes
// the largest whole things it can, and otherwise fills up what is in use already, so that large
// free things last as long as possible:
//
//  1. whole sockets and nodes that are free, outer level first;
//  2. whole cores: node after node, the one with the fewest free CPUs first. Inside the node, from
//     the cache group that yields most of what is missing; if several do, the one with the fewest
//     free CPUs. A container thus gets whole cache groups first and stays within one where it can,
//     but no core is split for that;
//  3. single threads, again from the node with the fewest free CPUs, on the core with the fewest
//     free threads, near the cache where the container has CPUs already.
//
// If topology hints name nodes, all of this happens inside them first, and the rest is taken from
// anywhere. Everything that is still equal is decided by the lowest id.
//
// How many CPUs come from which node is exactly what the kubelet would do, splitting a container
// over nodes for the sake of packing where no hint keeps it together; which ones inside the node
// differs only where a node has several cache groups (the kubelet looks at these with the option
// prefer-align-cpus-by-uncorecache) and where cores or nodes differ in size: here the largest come
// first, and a core whose sibling is offline is a whole core.
//
// Reusable CPUs are taken before free ones (the kubelet does not tell them apart), and what is
// added to them completes their cores, caches and nodes.
//
// # Options
//
// full-pcpus-only (KEP-2625): a container gets all online threads of each core that it gets any
// of. Threads per core are never assumed: a core without its sibling is a whole core of one CPU,
// and where cores differ, a number of CPUs is good if some of the cores have it together. Cores of
// which a thread is reserved or taken do not count. On machines with equal cores this is the
// kubelet's rule (a multiple of the threads per core), with its errors. Hints count whole cores
// too, so that no node is offered that has CPUs but no cores. The kubelet divides the number of
// CPUs by that of cores instead, and splits cores once a sibling is offline.
//
// strict-cpu-reservation (KEP-4540): reserved CPUs are not shared. The shared pool can then become
// empty; the caller rejects whoever would make it so while somebody shares, or would share it
// then. The kubelet lets such containers run on the CPUs of others.
//
// prefer-align-cpus-by-uncorecache (KEP-4800): after the whole sockets and nodes, cache groups that
// are free and needed as a whole; then all that is missing from one group, the first that has room:
// node after node, in each the fullest first. A core may be split for it. If none has room, it
// goes on with cores. On purpose, a group has room if it has as many free CPUs: the kubelet passes
// over some in which cores are split already, or would be and have more than two threads.
//
// distribute-cpus-across-numa (KEP-2902): of the nodes that the hint allows, the fewest that can
// give as many CPUs each. The remainder goes around some of them, a CPU from each at a time. Which
// nodes, and which of them for the remainder, is a matter of balance: afterwards the numbers of
// free CPUs of all nodes should have the smallest standard deviation. A request that fits one node
// is thus taken from the one with the most free CPUs. Of equals, the kubelet's order decides: nodes
// with the fewest free CPUs first, socket by socket where sockets have several nodes, then by id;
// and the remainder from as many nodes as can be. Nothing is divided when no division fits (packed
// as above). With full-pcpus-only it divides cores. With up to 8 nodes, and with more while there
// are few ways, all of them are tried as the kubelet does; else those of the nodes with the most
// free CPUs. The kubelet overwrites its best set of nodes, if it is of four or of six to eight,
// while it tries the next ones, and so may end with another last node; here it is the best by the
// rule.
//
// align-by-socket (KEP-3327): hints on as few sockets as can be are preferred, however many nodes
// they have; and the CPUs are packed anywhere in the sockets of the hint's nodes, also where its
// nodes alone would do. With distribute-cpus-across-numa, of as many nodes those of one socket
// are better than any others, and give what they have where that is less than an even part.
//
// distribute-cpus-across-cores (KEP-4176): after the whole sockets and nodes, one thread of each
// core of a socket, the idlest cores first, then a second one; the socket with the fewest free CPUs
// first. On purpose, the order is that of cores: the kubelet goes by the numbers of the CPUs, which
// spreads nothing where siblings have neighbouring numbers, and overlooks which cores are in use.
//
// # What pods ask for
//
// Isolating keeps CPUs in a pool of their own, and For is the policy as a pod sees it: what it
// gives out is the one pool or the other. Everything above holds for each of them, and how narrow
// hints can be is judged by the pool's CPUs. Cores stay what they are: one with threads in both
// pools is a whole core for nobody.
//
// For a pod that wants whole cores it is the policy with full-pcpus-only, but that a number of CPUs
// that is none of whole cores is padded with as few as can be (Padded) and not refused, and without
// distribute-cpus-across-cores, which would take the cores apart.
//
// The reserved CPUs, when only their number is given, are chosen by the same options.
package cpumanager
