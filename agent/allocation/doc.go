// Package allocation decides which CPUs and devices a pod gets, and remembers it.
//
// An allocation is a transaction:
//
//	View  -- Plan (pure) -->  Plan  -- reserve -->  Allocate RPCs  -- Store.Commit -->  State
//	                            |                        |                 |
//	                          error: nothing taken      error: reservation dropped
//
// A View is a snapshot: the machine, the plugins' inventory, what other pods hold. Plan reads it
// and answers with an assignment for every container of the pod or with the reason why there is
// none. Nothing is counted separately: free = all - assigned - reserved, computed each time.
//
// Plan knows no kind of resource by name. A draft asks the providers (providers.go: devices, CPUs,
// memory) one after the other what a container demands, what of it stays as it is, from which nodes
// the rest could be had, and lets them choose under the hint that was merged of their offers.
//
// The Store is the one owner of assignments. Commit writes them to disk before anybody can see
// them: a line of a journal, synced, and only then the State that readers load changes. The
// kubelet's own files are exported from it, and read only where our file does not exist: Rebuild
// makes the state of what runs, by the accounts of it that there are.
package allocation
