// Package gpu is a device plugin for NVIDIA GPUs: whole ones, MIG devices, and shares of both. It
// works under the stock kubelet too, and understands the configuration of NVIDIA's plugin.
//
//	Driver (package nvml, or mock) --- Read every 10 s, events at once
//	   |  Snapshot: GPUs, MIG devices, links, readings           plain values
//	   v
//	watch: the last snapshot, XIDs that no snapshot has, a driver that is away
//	   |  offersOf(snapshot, settings, health)                   pure
//	   v
//	serving: a server for each resource --- ListAndWatch, GetPreferredAllocation, Allocate
//
// A device is healthy as long as nothing is wrong that counts (health.go), and is healthy again
// when that is over; both are said with the reason. What a driver that is away had offered is unhealthy
// until it is back. A resource that has no devices any more is offered without any, and then not at
// all.
package gpu
