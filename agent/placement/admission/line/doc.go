// Package line holds the pods of admission in the order of arrival, with the ledger of what they have.
// Line.Step takes an event and returns what is to be done. With each Tick a Pass goes through the pods and
// decides on each that is queued. No later pod gets what is claimed.
//
// If a plugin is asked which devices it prefers for a pod, the pass stops there until it answers: later pods
// are decided on with what is free then. A plugin that takes longer than record.Patience stops it no longer,
// nor the next time, until it answers in time again: the pod keeps what it would get without advice as its
// place, and the pass goes on. A pod that wants a preference of the same plugin stands in line behind it, with
// a place of its own, so that later pods that want other things do not get ahead. When the answer comes, pods
// exchange devices on the same NUMA nodes with those behind. A resource has one slot, which the pod has from
// the first question until it is assigned its devices.
//
// A pod of which the API server has yet to say whether it could start has its place meanwhile, and holds the
// slots of its resources. If it could not start, the place is free: a pod that would have a place but for that
// stands in line too.
package line
