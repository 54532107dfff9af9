// Package admission admits pods, has them wait, or rejects them.
//
// Six rooms share the work:
//
//   - decide decides on one pod: a pure function of a Snapshot (the node, the handlers and the
//     allocation.Ledger of what pods have) and a Request.
//   - handlers has the checks that come before resources, a function each.
//   - record is the life of one pod: a pure function of its record and an event, which returns the next
//     record and effects.
//   - line has the pods in the order of arrival and their ledger. A step of it takes an event and returns what
//     is to be done; it waits for nothing, and nothing else decides.
//   - report tells outcomes and events, and keeps the explanation of each pod's last decision.
//   - This package has the queue. The admitter has the line take steps, and does what these want done.
//
// One goroutine, Run, owns all of it and never waits: a goroutine for each pod asks plugins and
// commits assignments, and brings an answer back. So a plugin that hangs holds up the pods that need it,
// and no others.
//
// An answer counts if it is that of the pod's last call. A late one changes nothing.
//
// A pod that ran before, with its sandbox alive and its assignment recorded under this boot, is adopted:
// no plan, no Allocate, no write. A pod that is alive and has no record is planned like any other, but
// is admitted even without a plan, with a warning that says what it lacks.
package admission
