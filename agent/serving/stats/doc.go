// Package stats reports the resources that the node and its pods use: as the kubelet's summary, and
// as the metrics of the kubelet and of cAdvisor.
//
//	runtime (one list call)   cgroups, /proc        filesystems, directories of volumes and logs
//	            \                /                         | in the background, while asked for
//	             v              v                          v
//	            Collector -> Snapshot (immutable)  +     Disks (immutable)
//	                                |
//	          pure:  Summary   resourceMetrics   cadvisorMetrics
//
// Callers within a second of each other share one snapshot: the first one reads, the others wait
// for it. A reading has a deadline. After a failed one callers get the last successful one, with
// its own times.
package stats
