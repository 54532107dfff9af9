// Package pod holds what the agent knows of a pod and decides what follows from an event. It is
// pure: Step takes a record and an event, and returns the next record and the effects; the syncLoop
// feeds the events and carries out the effects.
//
// Each pod has one Record, and nothing else says whether a pod is desired, being ended, or desired
// again before it was gone. Admission knows what the pod holds, its worker what it does, and the
// status store what was reported of it: each from the effect that begins this to the event that
// ends it.
//
//	effect           answered by
//	Submit           Admitted, Waits (more may follow) or Refused
//	Release          Released, once
//	Run, Terminate   Ended, when nothing of the pod runs any more; its containers' records stay
//	Remove           Gone, once, when nothing of it is left
//
// Whatever the order of events:
//
//   - whatever may run has a record;
//   - nothing is released while something of the pod may run;
//   - admission hears of a pod's end first: a pod that others place in the freed room then waits for
//     it here;
//   - a pod is submitted, and run, only after its earlier life is gone and released;
//   - a killed pod does not run again as long as its record lasts;
//   - the last desired spec counts;
//   - a pod is its UID, namespace and name: another pod of the same UID begins when the first is
//     gone and released;
//   - nothing is removed as an orphan before every source was heard.
package pod
