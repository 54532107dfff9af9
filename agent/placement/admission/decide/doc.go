// Package decide decides on one pod. It is pure: no goroutine, lock, clock or file.
//
// A Snapshot holds the node, the handlers and the ledger of what pods have; a Request holds the pod,
// what it has already and what plugins prefer for it. Snapshot.Decide asks the handlers, then plans in
// the room that the other pods leave now. If there is no place it forecasts the room that is left once
// terminating pods are gone, plugins are back and devices healthy (forecast.go), and lets a critical pod
// preempt others (preempt.go). Free tells cheaply whether a plan can succeed.
//
// A new kind of refusal is a Handler. A new input of decisions, such as a node's pressure, is a field of
// View that a handler looks at.
package decide
