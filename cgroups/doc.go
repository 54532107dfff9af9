// Package cgroups keeps the control groups above the containers: one for all pods, one per quality
// of service class, one per pod. The runtime makes those of the containers below them.
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
// Names and values are the kubelet's, so that the tree of a node can be taken over in either
// direction. On cgroup v1 the tree exists once per mounted controller, on v2 once. With the
// systemd driver, systemd makes the slices and is told the values it knows about, since it would
// set them back otherwise; the rest is written to the files beside it.
//
// What a cgroup gets is decided by pure functions (PodResources, NodeResources, QOSResources);
// Tree writes it. Every operation can be repeated, and does then nothing new.
package cgroups
