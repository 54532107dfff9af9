// Package pod says what the agent knows of a pod and what follows from an event. It is pure: Step
// takes a record and an event and returns the next record and what is to be done; the syncLoop
// feeds the events and carries out the effects.
//
// There is one Record for each pod, and it is the only place that says whether a pod is desired,
// being ended, or desired again before it was gone. Admission knows what the pod holds, its worker
// what it does, the status store what was told of it: each for the time between the effect that
// begins it and the event that ends it.
//
//	effect           answered by
//	Submit           Admitted, Waits (more may follow) or Rejected
//	Release          Released, once
//	Run, Terminate   Ended, when nothing of the pod runs any more and its records stay
//	Remove           Gone, once, when nothing of it is left
//
// What always holds, whatever the order of events:
//
//   - whatever may run has a record;
//   - nothing is released while something of the pod may run;
//   - admission hears that a pod has come to its end before anybody else does, so that a pod that
//     was given its room elsewhere waits for it here;
//   - a pod is not submitted, and not run, before what it was earlier is gone and released;
//   - a pod that was killed does not run again as long as its record lasts;
//   - of several specs the last one that was desired counts;
//   - a pod is its UID and its namespace and name: another one of that UID is begun with when the
//     first is gone and released.
package pod
