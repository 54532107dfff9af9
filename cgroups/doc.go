// Package cgroups keeps the cgroups above the containers: one for all pods, one each for the
// burstable and the best-effort class, and one per pod. The runtime makes those of the containers
// below them.
//
//	driver cgroupfs               driver systemd
//	/                             /
//	`-- kubepods                  `-- kubepods.slice
//	    |-- podUID   (Guaranteed)     |-- kubepods-podUID.slice
//	    |-- burstable                 |-- kubepods-burstable.slice
//	    |   `-- podUID                |   `-- kubepods-burstable-podUID.slice
//	    `-- besteffort                `-- kubepods-besteffort.slice
//	        `-- podUID                    `-- kubepods-besteffort-podUID.slice
//
// Names and values are the kubelet's, so that a node can switch agents in either direction and keep
// the tree. On cgroup v1 the tree exists once per mounted controller, on v2 once. With the systemd
// driver, systemd makes the slices and gets the values that it knows about, since it would
// otherwise reset them; the rest is written to the files directly.
//
// Pure functions decide the values of a cgroup (PodResources, NodeResources, QOSResources); Tree
// writes them. Every operation is idempotent.
//
// Two libraries know the kernel's files. containerd/cgroups makes and removes cgroups, and enables the
// controllers of v2 and writes their values. opencontainers/cgroups, which the kubelet and runc have,
// writes the values of v1 and single files, and finds and moves processes.
package cgroups
