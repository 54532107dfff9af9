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
// The Store is the one owner of assignments. Commit writes them to disk before anybody can see
// them: temporary file, fsync, rename, fsync of the directory, and only then the State that
// readers load changes. The kubelet's own files are exported from it, and read only where our file
// does not exist: Rebuild makes the state of what runs, by the accounts of it that there are.
package allocation
