// Package probe asks containers at the right times whether they have started, live and are ready,
// and keeps their answers.
//
// One goroutine with one timer knows when each probe is due. Each due probe runs in a new
// goroutine, at most maxAtOnce of one pod at a time, so that probes that hang do not delay those of
// other pods. A probe never runs twice at a time.
//
//	                                                  .--- answered, due again <--.
//	                                                  v                           |
//	Held -- its container may be probed --> Scheduled -- due --> Asking ----------'
//	  ^                                        ^   |               |
//	  |              another of the pod's ended|   | its pod asks  | answered for good
//	  |                                        |   v enough        |
//	  |                                       Queued               |
//	  '------------------------------------------------------------'
//
// A probe belongs to one run of a container and ends with it. The prober follows the statuses of
// pods: it probes a container for its start until it has started, then for the rest; it probes a
// pod that is being ended only for readiness. The results are Probed; each change wakes the pod's
// worker, which decides what to do.
//
// The answers are lost when the agent ends. Afterwards a running container counts as what its
// status says until enough answers have come, and its probes keep their rhythm.
package probe
