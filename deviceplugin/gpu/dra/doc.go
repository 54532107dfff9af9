// Package dra makes the GPU plugin a driver of resource claims (Dynamic Resource Allocation).
//
//	gpu.Plugin (Follow) --- State: GPUs, MIG devices, what counts against them
//	   |  inventoryOf(state, options)                            pure
//	   v
//	inventory --- the devices of a moment, as package dradriver publishes and hands them out
//
// With Options.Dynamic, claims divide the GPUs that are in MIG mode: each possible place of a MIG
// device is a device, and counters (one for each memory slice) keep those that overlap from being
// allocated together. Preparing a claim makes the MIG device, unpreparing removes it. A MIG device
// that no record has is left over from a kill, and is removed before its place is needed.
package dra
