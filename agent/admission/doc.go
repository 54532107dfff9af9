// Package admission admits pods, has them wait, or rejects them.
//
// Three rooms share the work:
//
//   - decide decides on one pod: a pure function of a Snapshot (the node, the handlers and the
//     allocation.Ledger of what pods have) and a Request.
//   - handlers has the checks that come before resources, a function each.
//   - This package has the queue. record.step is the life of one pod: a pure function of its record
//     and an event, which returns the next record and effects. The admitter tells records of events and
//     carries the effects out. A pass asks for the decisions, in the order of arrival.
//
// One goroutine, Run, owns all of it and never waits: a goroutine for each pod asks plugins and
// commits assignments, and sends an event back. So a plugin that hangs holds up the pods that need it,
// and no others.
//
//	    Submit
//	      v       advice is wanted, something may be stale, what it needs is not known
//	.-> queued <-------------------> asking, rereading, inquiring
//	|     |
//	|     | others are asked about
//	|<----|------> behind
//	|     |
//	|     | has a place        committed
//	|     |------> allocating -----------> admitted        (nothing to assign: at once;
//	|     |           |                        |            runs already: whatever it lacks)
//	|     |           | plugin away, disk full | Leaving
//	|     |           v                        v
//	|<----|------- retrying               terminating
//	|     |                                    |
//	|     | will have a place                  | Release
//	|<----|------> waiting, pendingRelease     v
//	|     |                                releasing -- dropped from the store --> Released
//	|     | a handler says later,            ^    |
//	|     | something it needs is missing    |    |
//	|<----|------> deferred                  |    v
//	|     |                                unreleased (the commit failed)
//	|     | no place
//	|     |------> rejected
//	'<----'------> heldBack    (others of its controller were rejected lately)
//
// event.go lists every event and effect. Of the events, four depend on the state alone (state.next):
//
//   - Leaving withdraws a pod without a place. A call under way is waited for: the pod is finishing, and
//     then terminating or withdrawn.
//   - Release drops what is recorded, from any state. A call under way is canceled and waited for first.
//   - When the time of a state is over, a pod that is retrying or held back is queued, an unreleased one
//     released again, and a waiting one queued to be rejected.
//   - A change (something is free, a plugin, the machine, Poke) queues the pods that it may concern. A
//     pod behind another is queued once it is known what that gets.
//
// An answer counts if it is that of the pod's last call. A late one changes nothing.
//
// A pod that is not admitted has one of three reservations. A claim, while it waits, goes to nobody who
// comes later; terminating pods may hold it still. A tentative one, while a plugin is asked or the pod
// stands in line, is a guess: it counts only for those who come later, and nobody is rejected for it.
// An assigned one, while Allocate and the commit run or are tried again, is the pod's own. A pod whose
// claim breaks gets another, if need be one of the pods behind. Devices of which a plugin has a
// preference may be exchanged for others on the same nodes.
//
// A pod that would be given something of its own, and could not start for want of an object of the API
// server, has none of the three. Needs says what is known of that, and does not block.
//
// A pod that ran before, with its sandbox alive and its assignment recorded under this boot, is adopted:
// no plan, no Allocate, no write. One that is alive and has no record is planned like any other, but is
// admitted even without a plan, with a warning that says what it lacks.
package admission
