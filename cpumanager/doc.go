// Package cpumanager decides which CPUs a container runs on. It is pure: the caller keeps the
// assignments and writes them to cgroups; this package says what they should be.
//
//	Exclusive, PodExclusive   the number of exclusive CPUs of a container (or pod)
//	Reserved                  the CPUs reserved for the system
//	Static.Free               the CPUs that can be assigned
//	Static.Supply             the NUMA nodes from which a request can be served
//	Static.Choose             the CPUs that it gets
//	Static.Shared             the CPUs of all other containers
//	Static.CheckAlignment     whether a request only fails for lack of whole cores
//	Static.CheckShared        whether any CPU is left to share
//	Static.Isolating, For     the CPUs that are only for pods that ask for them
//	Static.Padded             the number of CPUs of a request for whole cores
//
// # Exclusive and shared CPUs
//
// A container of a Guaranteed pod that asks for a whole number of CPUs gets exclusive ones. All
// other containers share the remaining CPUs, the reserved ones included: reserved CPUs are never
// assigned, but they are used. This is the kubelet's static policy
// (https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/).
//
// # Hints
//
// Every set of NUMA nodes with room for the request is a hint. It is preferred if it is as small as
// possible, judged by all CPUs of the machine: a set of two is not preferred merely because one
// node is too full today. CPUs that earlier init containers of the pod leave behind (reusable) must
// all be inside, or they would lie idle until the pod ends.
//
// Nodes without CPUs are in no hint, as with the kubelet: they add nothing to a set but would
// double the number of sets. So a device on such a node shares no node with any CPU; restricted and
// single-numa-node reject that container, best-effort places it anywhere.
//
// The number of sets doubles with each node. With up to 11 nodes all sets are tried, which covers
// every answer of the kubelet. With more nodes, sets are tried by increasing width up to a limit
// (all pairs of 64 nodes); after that, for each node, the narrowest set around it that has room and
// is built from the nodes with the most available CPUs. So every node that can be part of an answer
// is in one, and no narrower answer for it exists.
//
// # Choose
//
// The machine is a tree: sockets, their nodes (or nodes, their sockets: the level with fewer
// members is the outer one), their last-level caches, their cores, their threads. A request takes
// the largest whole units it can, and otherwise fills up units that are already in use, so that
// large free units last as long as possible:
//
//  1. whole sockets and nodes that are free, outer level first;
//  2. whole cores: node by node, the one with the fewest free CPUs first. Inside a node, from the
//     cache group that yields most of what is missing; of several, from the one with the fewest free
//     CPUs. A container thus first gets whole cache groups and stays within one if possible, but no
//     core is split for that;
//  3. single threads, again from the node with the fewest free CPUs, on the core with the fewest
//     free threads, near the cache where the container already has CPUs.
//
// If topology hints name nodes, all of this happens inside them first, and the rest is taken from
// anywhere. The lowest id breaks all ties.
//
// The number of CPUs from each node is exactly the kubelet's, even where it splits a container over
// nodes for the sake of packing and no hint keeps it together. Which CPUs inside a node only
// differs if a node has several cache groups (the kubelet looks at these with the option
// prefer-align-cpus-by-uncorecache) or if cores or nodes differ in size: here the largest come
// first, and a core whose sibling is offline is a whole core.
//
// Reusable CPUs are taken before free ones (the kubelet does not distinguish them), and further
// CPUs complete their cores, caches and nodes.
//
// # Options
//
// full-pcpus-only (KEP-2625): a container gets all online threads of each of its cores. Threads per
// core are never assumed: a core without its sibling is a whole core with one CPU, and if cores
// differ, a number of CPUs fits if some of the cores together have it. Cores with a reserved or
// assigned thread do not count. On machines with equal cores this is the kubelet's rule (a multiple
// of the threads per core), with its errors. Hints count whole cores too, so that no node is
// offered that has CPUs but no cores. The kubelet divides the number of CPUs by that of cores
// instead, and splits cores once a sibling is offline.
//
// strict-cpu-reservation (KEP-4540): reserved CPUs are not shared. The shared pool can then become
// empty; the caller rejects a pod that would empty it while containers share it, or that would
// share it when it is empty. The kubelet lets such containers run on the CPUs of others.
//
// prefer-align-cpus-by-uncorecache (KEP-4800): after whole sockets and nodes come cache groups that
// are free and needed as a whole; then all that is missing from one group, the first that has room:
// node by node, in each the fullest first. A core may be split for it. If none has room, cores
// follow. On purpose, a group has room if it has enough free CPUs: the kubelet skips some in which
// cores are split already, or would be and have more than two threads.
//
// distribute-cpus-across-numa (KEP-2902): among the nodes that the hint allows, the fewest that can
// give equal numbers of CPUs. The remainder goes around some of them, one CPU from each at a time.
// Balance decides which nodes, and which of them give the remainder: afterwards the numbers of free
// CPUs of all nodes should have the smallest standard deviation. So a request that fits one node is
// taken from the one with the most free CPUs. Ties are broken in the kubelet's order: nodes with
// the fewest free CPUs first, socket by socket if sockets have several nodes, then by id; and the
// remainder from as many nodes as possible. If no division fits, nothing is divided (packed as
// above). With full-pcpus-only it divides cores. With up to 8 nodes, or more while there are few
// ways, all ways are tried as the kubelet does; otherwise only those with the roomiest nodes. The
// kubelet overwrites its best set of nodes, if it has four or six to eight members, while it tries
// the next ones, and so may end with another last node; here the best by the rule wins.
//
// align-by-socket (KEP-3327): hints on as few sockets as possible are preferred, however many nodes
// they have; and the CPUs are packed anywhere in the sockets of the hint's nodes, even if its nodes
// alone suffice. With distribute-cpus-across-numa, among equally many nodes those of one socket
// win, and give what they have if that is less than an even part.
//
// distribute-cpus-across-cores (KEP-4176): after whole sockets and nodes, one thread of each core
// of a socket, the idlest cores first, then a second one; the socket with the fewest free CPUs
// first. On purpose, the order is that of cores: the kubelet goes by the ids of the CPUs, which
// spreads nothing if siblings have neighbouring ids, and ignores which cores are in use.
//
// # Requests of pods
//
// Isolating puts CPUs into a separate pool, and For returns the policy as a pod sees it, which
// assigns CPUs from one pool or the other. Everything above holds for each pool, and the pool's
// CPUs decide how narrow hints can be. Cores stay what they are: one with threads in both pools is
// a whole core in neither.
//
// For a pod that asks for whole cores it is the policy with full-pcpus-only, except that a number
// that does not fill whole cores is padded with as few CPUs as possible (Padded) instead of
// refused, and without distribute-cpus-across-cores, which would split cores.
//
// If only the number of reserved CPUs is given, they are chosen by the same options.
package cpumanager
