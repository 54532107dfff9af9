// Package record holds what admission knows of a pod and decides what follows from an event. It is pure:
// Step takes a record and an event, and returns the next record and the effects, for package line.
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
// event.go lists every event and effect. Four prompts depend on the state alone:
//
//   - Leaving withdraws a pod without a place. A call under way is waited for: the pod is finishing, and
//     then terminating or withdrawn.
//   - Release drops what is recorded, from any state. A call under way is canceled and waited for first.
//   - When the time of a state is over, a pod that is retrying or held back is queued, an unreleased one
//     released again, and a waiting one queued to be rejected.
//   - A change (something is free, a plugin, the machine, Poke) queues the pods that it may concern. A
//     pod behind another is queued once it is known what that gets.
//
// A pod that is not admitted has one of three reservations. A claim, while the pod waits, is kept from
// later pods; terminating pods may hold it still. A place is what the pod gets without the preference that is
// asked for, while the API server is asked whether the pod could start, or while it stands in line: no other
// pod gets it, and the pod may have another one in the end. An assigned reservation, while Allocate and the
// commit run or are tried again, is the pod's own. A pod whose claim breaks gets another, if need be one of the
// pods behind. Devices of which a plugin has a preference may be exchanged for others on the same nodes.
//
// A pod that would be given something of its own, and could not start for want of an object of the API
// server, has none of the three, but an Inquiry.
package record
