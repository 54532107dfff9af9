// Package dra makes the GPU plugin a driver of resource claims (Dynamic Resource Allocation).
//
//	gpu.Plugin (Follow) --- State: GPUs, MIG devices, what counts against them
//	   |  inventoryOf(state, options)                            pure
//	   v
//	inventory --- ResourceSlices, health reports, lookups by device name
//	   |
//	Driver --- registration, NodePrepareResources, NodeWatchResources (package kubeletplugin)
//	   |
//	store --- one CDI spec per prepared claim: it is also the record of the claim
//
// The driver holds no other state: each call reads the records anew, so that nothing can differ
// from what containers get, whenever the process is killed.
//
// With Options.Dynamic, claims divide the GPUs that are in MIG mode: each possible place of a MIG
// device is a device, and counters (one for each memory slice) keep those that overlap from being
// allocated together. Preparing a claim makes the MIG device, unpreparing removes it. A MIG device
// that no record has is left over from a kill, and is removed before its place is needed.
package dra
