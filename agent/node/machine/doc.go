// Package machine provides the node's present hardware.
//
// Hardware is an immutable value: the machine and everything that follows from it alone, the CPU
// and memory policies, the reservation, and what pods may request. Current holds the valid one. A
// caller that decides on something calls Get once and uses that value throughout:
//
//	sysfs -- Read --> topology.Machine -- Derive --> Hardware -- swap --> subscribers
//
// Current.Run reads again every Period, within a second of a change of the Sign, and after each
// Reread, which callers use when they suspect a change: for a pod that lacks huge pages and waits
// for them. Uevents would be another trigger, but the kernel sends them only to the first network
// namespace, and reading one small file each second costs nothing. As long as Read returns the same
// machine, nothing is derived, swapped or published.
//
// Current.Run is the only writer. If a machine cannot be read, or the configuration does not fit
// it, the Hardware stays; this is logged once, and tried again.
package machine
