// Package allocation plans which CPUs, memory and devices a pod gets. It is pure: no goroutine, lock,
// clock or file.
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
// Plan knows no kind of resource by name. A draft asks the providers (providers.go: devices, CPUs,
// memory) in turn what a container demands, what of it stays as it is and from which nodes the rest can
// be had, and lets them choose under the merged hint.
//
// The Ledger has what each pod holds or claims, for admission. Two rooms keep assignments:
//
//   - store owns the State. Commit writes a line of a journal, syncs it, and only then shows the State.
//   - handover exports the kubelet's files from it, reads those of a kubelet, and rebuilds the state from
//     what runs.
package allocation
