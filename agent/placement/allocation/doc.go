// Package allocation plans which CPUs, memory and devices a pod gets. It is pure: no goroutine,
// lock, clock or file.
//
// An allocation is a transaction:
//
//	View  -- Plan -->  Plan  -- reserve -->  Allocate RPCs  -- store.Commit -->  State
//	                    |                        |                 |
//	                  error: nothing taken      error: reservation dropped
//
// A View is a snapshot: the machine, the plugins' inventory, what other pods hold. Plan returns an
// assignment for every container of the pod, or the reason why there is none. Nothing is counted
// separately: free = all - assigned - reserved, computed each time.
//
// Resources are open by kind (kinds.go). A kind is a line in the table and a file with four views
// of the same thing:
//
//	Holding   what one container holds    in Container   JSON, answers, text
//	total     what some pods hold         in Holdings    do two pods overlap?
//	counts    how many pods hold an item  in the Ledger  taken, lasting, in conflict
//	provider  what a plan can hand out    in a draft     ask, keep, offer, choose
//
// Container and Holdings are lists in the order of the table. All code that is not about one kind
// loops over them; code about one kind uses its typed accessors (Container.CPUs, Holdings.Devices,
// ...), and so does code outside this package. Whether pods can share an item is decided in
// overlaps and conflict, whether a plugin or a driver has to answer first in the interface
// answered, and whether it has to be told of a release in releases.
//
//   - A resource claim: a Holding that refers to the claim by name and has the driver's answer,
//     which intent drops; overlaps is false and conflict empty, as pods share claims; releases names
//     the claim, and the driver unprepares it once no pod holds it. kinds_test.go takes such a kind
//     the whole way.
//
// A pod with pod-level resources may have a pool (pool.go). It holds that under a name of its own,
// WholePod, beside its containers, which hold parts of it: so all that adds up, writes and compares
// holdings has it too. Memory, which unlike CPUs would count twice, is added up by the pool alone.
//
// The kind hardware has no holdings: its total follows from devices and claims, so that hardware that
// a driver and a device plugin both hand out has one owner.
//
// Two rooms keep assignments:
//
//   - store owns the State. Commit writes a line of a journal, syncs it, and only then shows the
//     State. The version of the file follows from the kinds.
//   - handover exports the kubelet's files from it (a file and a line for each kind that has one),
//     reads those of a kubelet, and rebuilds the state from what runs.
package allocation
