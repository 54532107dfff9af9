// Package lifecycle follows pods in the container runtime and keeps the newest observation of each
// (the kubelet's pod lifecycle event generator).
//
//	container events ---\                  (exits and removals, as they happen)
//	                     > pods to read --> read pod --> cache --> Changes
//	relist, diff by id -/                  ^
//	                                       |
//	worker, after its own action ----- Observe
//
// Events are hints: they name a pod to read. A lost event costs time, but nothing is missed for
// good, because a relist compares ids and states of everything with the cache: every 10 s while
// there is an event stream, every RelistPeriod otherwise.
//
// Reads of one pod may overlap. The read that started last wins, so a pod never seems to go back in
// time.
package lifecycle
