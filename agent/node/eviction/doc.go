// Package eviction keeps the node alive when memory, a disk or PIDs run short: before the kernel must,
// it reclaims what no pod needs, and then ends pods, one at a time, in the kubelet's order.
//
//	  the kernel    the pace of readings       wake/, pace.go
//	         v       v
//	     a glance (stats, without pods)
//	         v
//	readings, by signal           signals.go   pure
//	         v
//	state.step(readings, now)     step.go      pure: which thresholds are met and for how long, which
//	         |                                 conditions hold, which threshold is to be relieved first,
//	         |                 returning.go    and what must be free before a pod is evicted for it
//	         v
//	measure pods too, reclaim     manager.go   the shell
//	         v
//	rank(pods, usage)             rank.go      pure: who goes first
//	         v
//	Evict                                      an event of the syncLoop, which does all the rest
//
// The conditions reach the node's status and admission through node.State. The package ends no
// container itself, and remembers no pods but those whose end, or whose room, it waits for.
package eviction
