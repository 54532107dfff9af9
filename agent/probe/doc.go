// Package probe asks containers whether they have started, live and are ready, when it is time to,
// and keeps what they answered.
//
// One goroutine and one timer know when each probe is due; what is due is carried out by a goroutine
// of its own for as long as it takes, of one pod at most maxAtOnce at a time, so that nobody's
// probes that hang delay those of another pod. Of one probe never two are under way.
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
// A probe belongs to one run of a container and is dropped with it. The prober follows the statuses
// of pods: a container is probed for its start until it has started, then for the rest, and a pod
// that is being ended for its readiness alone. What the answers come to is Probed, and whenever
// that changes the pod's worker is woken; what follows from it is the worker's to decide.
//
// What was answered is lost with the agent. A container that runs then is taken for what its status
// says until enough answers say otherwise, and its probes keep their times.
package probe
