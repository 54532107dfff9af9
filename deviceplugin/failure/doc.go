// Package failure decides what becomes of a pod whose device fails. It is pure: State.Step takes the
// present health of the devices that pods hold, and returns the next state and what is to be told and
// done.
//
//	                 Unhealthy                 for the hold-off
//	(no suspicion) -----------> suspected -------------------------> acted on
//	      ^                        |                                     |
//	      '--- Healthy, Unknown ---'          Healthy, or not held       |
//	      '--------------------------------------------------------------'
//
// A device whose health is unknown, since its plugin or driver is away, has not failed; one that was
// acted on stays so until it is healthy, so that one failure causes one action. An action (Act) is
// durable: its owner writes it before it is done. Suspicions are not, and their hold-off begins anew
// when the agent starts.
package failure
