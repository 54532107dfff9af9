// Package gpu is a device plugin for NVIDIA GPUs: whole GPUs, MIG devices, and shares of both. It
// also works under the stock kubelet, and reads the configuration of NVIDIA's plugin.
//
//	Driver (package nvml, or mock) --- Read every 10 s, events at once
//	   |  Snapshot: GPUs, MIG devices, links, readings           plain values
//	   v
//	watch: the last snapshot, XIDs that no snapshot has, a driver that is away
//	   |  offersOf(snapshot, settings, health)                   pure
//	   v
//	serving: a server for each resource --- ListAndWatch, GetPreferredAllocation, Allocate
//
// A device is healthy while it has no trouble that counts (health.go), and recovers when the
// trouble ends; both are logged with the reason. While the driver is away, its devices stay listed
// and are unhealthy. A resource whose devices are gone is first offered without devices, then no
// longer.
package gpu
