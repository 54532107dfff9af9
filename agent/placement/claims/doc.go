// Package claims has the ResourceClaims of this node's pods prepared and unprepared by their
// drivers.
//
// Each claim has a Record: which pods use it, and what each of its drivers was told and answered.
// Step, pure, says what an event makes of it. A record is durable before a driver is called, so a
// crash at any point forgets nothing that a driver may have: a driver that was never called has
// nothing to undo, and needs not be there for a pod to end.
//
//	waits:   Begin ... Uses (reads the claims at the API server) ... End
//	starts:  Prepare: Used, PrepareSent -> calls, one for each driver, side by side -> WasPrepared
//	runs:    CDI, Prepared
//	ends:    Release -> Run: Left; the last one: UnprepareSent -> calls -> WasUnprepared
//
// No lock is held across a call. Two calls for the same claim at the same driver never overlap:
// the second caller waits until the first call has ended and looks again.
//
// The kubelet's dra_manager_state is written with each change, and read when a kubelet has written
// it since.
package claims
