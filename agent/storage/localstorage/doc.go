// Package localstorage knows what pods use of the node's own disks, and ends those that use more
// than they may.
//
//	logs, /etc/hosts       each 10 s
//	volumes                quota.Used, statfs of a tmpfs, or a walk (diskusage), when they are due
//	         v
//	      Meter            meter.go, measure.go   the one owner of "what a pod uses on disk", with its
//	         |                                    age; schedule.go says when a pod is due (pure)
//	         v
//	stats.Summary          adds the runtime's writable layers; /stats/summary, the ranking of
//	         |             evictions and the limits all read this
//	         v
//	Exceeded(pod, usage)   limits.go              pure: the limit that a pod exceeds, in the kubelet's
//	         |                                    words
//	         v
//	Keeper                 keeper.go              the shell: looks each 10 s, ends each pod once
//
// A walk works for an eighth of the time, at most four run at once, and a pod's volumes are not
// measured again before twenty times as long has passed as that took, or five periods; only evictions
// may ask for it, where it is quick. Readers do not wait for a walk: they get what was measured last.
//
// volume.OwnOf lists the volumes to measure here. Volumes of servers, drivers and devices have room of their own;
// volume.Meter asks for that.
package localstorage
