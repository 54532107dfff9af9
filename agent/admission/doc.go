// Package admission decides, pod by pod, between three outcomes: admit, wait because, reject.
//
// decide is the whole of a decision: a pure function of a Snapshot (the node, the handlers and the
// allocation.Ledger of what pods have) and a request. The queue calls it for the pods that it
// knows, and Snapshot.Decide for those of a dry run.
//
// One goroutine owns the queue. It decides and reserves in the order in which pods arrived, and
// never waits for anything: what takes time, a plugin's answer or the durable commit, is done by a
// goroutine per pod that sends back what came of it. So a plugin that hangs holds up the pods that
// need it, and no others.
//
//	    Submit
//	      v            a preference is wanted      memory is short
//	.-> queued <------------------------> asking, rereading
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
//	|<----|------> waiting, brief              v
//	|     |                                releasing -- dropped from the store --> Released
//	|     | a handler says later             ^    |
//	|<----|------> deferred                  |    v
//	|     |                                unreleased (the commit failed)
//	|     | no place
//	|     |------> rejected
//	'<----'------> heldBack    (others of its controller were rejected lately)
//
// The table of events, which is in transition:
//
//   - Leaving takes from a pod without a place what it has: withdrawn. What a goroutine has begun
//     is waited for: finishing, and then terminating or withdrawn.
//   - Release drops what is recorded, from any state. What a goroutine has begun is ended and
//     waited for before: canceling. A release that is under way is not begun again.
//   - When the time of a state is over, a retrying pod and one that is held back are queued, an
//     unreleased one released again, and a waiting one queued to be rejected. The deadline rejects
//     those that are retrying or deferred.
//   - A change (something is free, a plugin, the machine, Poke) queues the pods that it may
//     concern. One that stands behind another is queued when it is known what that gets.
//   - An answer of a goroutine counts if it is of the last call for the pod, in a state that has
//     one under way. Any other one is late, and changes nothing.
//
// While it is not admitted a pod has one of three reservations. A claim, while it waits, is what
// nobody who comes later gets; terminating pods may have it still. A tentative one, while a plugin
// is asked or the pod stands in line for that, is a guess: what it would get without the answer. It
// counts for those only who come later, and nobody is turned away for it. What is assigned, while
// Allocate and the commit run or are tried again, is its own. A claim that breaks is replaced by
// another, if need be one of those of the pods behind. Devices of which a plugin has a preference may be exchanged for
// others on the same nodes.
//
// A pod that ran before, with its sandbox alive and its assignment recorded under this boot, is
// adopted: no plan, no Allocate, no write. One that is alive and has no record is planned like any
// other, but what stops the plan does not stop the pod: it is admitted with nothing of its own, and
// a warning says what it lacks.
package admission
