// Package lifecycle watches what the container runtime does with pods and keeps the newest
// observation of each.
//
//	container events ---\                  (exits and removals, as they happen)
//	                     > pods to read --> read pod --> cache --> Changes
//	relist, diff by id -/                  ^
//	                                       |
//	worker, after its own action ----- Observe
//
// Events are hints: they say which pod to read, nothing more. Losing one costs time, not truth,
// because a relist compares ids and states of everything with the cache: every RelistWithEvents
// while an event stream is up, every RelistPeriod otherwise.
//
// Reads of one pod may overlap. The one that was started last wins, so that nobody ever sees a
// pod go back in time.
package lifecycle
