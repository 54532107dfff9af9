// Package dradriver has what our drivers of resource claims (Dynamic Resource Allocation) share. A
// driver knows its devices and what containers get with them, this package does the rest:
//
//	Devices, of a moment --- Set
//	   |
//	Driver --- ResourceSlices, registration, NodePrepareResources, NodeWatchResources
//	   |                                                          (package kubeletplugin)
//	store --- one CDI spec per prepared claim: it is also the record of the claim
//
// The driver holds no other state: each call reads the records anew, so that nothing can differ
// from what containers get, whenever the process is killed.
package dradriver
