// Package machine has the node's hardware as it is now.
//
// Hardware is an immutable value: the machine and all that follows from it alone, the CPU and
// memory policies, the reservation, what pods may request. Current holds the one that counts.
// Whoever decides on anything calls Get once, and works with that value to the end:
//
//	sysfs -- Read --> topology.Machine -- Derive --> Hardware -- swap --> subscribers
//
// Current.Run reads again each Period, within a second of a change of the Sign, and after each
// Reread, which anybody may call who has a reason to think that something changed: a pod that lacks
// huge pages, and waits for it. The kernel's uevents would be such a reason, but they reach only
// the first network namespace, and one small file each second costs nothing. Nothing is derived,
// swapped or told as long as Read returns the machine that it was given.
//
// Current.Run is the only writer. A machine that cannot be read, or on which the configuration
// makes no sense, leaves the Hardware as it was; it is said once, and tried again.
package machine
