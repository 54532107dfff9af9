// Package stats tells what the node and its pods use of the node's resources: as the kubelet's
// summary, and as the metrics of the kubelet and of cAdvisor.
//
//	runtime (one list call)   cgroups, /proc        filesystems, directories of volumes and logs
//	            \                /                         | in the background, while asked for
//	             v              v                          v
//	            Collector -> Snapshot (immutable)  +     Disks (immutable)
//	                                |
//	          pure:  Summary   resourceMetrics   cadvisorMetrics
//
// Whoever asks within a second of each other gets the same snapshot: the first asker reads, the
// others wait for it. A reading has a deadline, and after one that failed the last that succeeded
// is told, with the times at which it was true.
package stats
