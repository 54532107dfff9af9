// Package resources says what containers and their pods are to have now, and brings cgroups and the
// runtime in line with it.
//
// Node is what they are to have, a pure function of the ledger, of the pods' specs as allocated, of
// the hardware and of the settings. Containers and pods' cgroups are created with what it says, and
// Loop compares with it what exists. For whatever changes (an assignment, the hardware, the policy,
// the spec as allocated) the change and a round of the loop is all it takes.
//
// A round is a line of pure functions between reading and calling:
//
//	reader  reads what containers and pods have        live
//	compare finds what differs from what Node says     lack
//	steps   orders that: shrink inside, change the     [3][]lack
//	        pod's cgroup, grow inside
//	update  carries it out; records keeps what is needed in later rounds
//
// CPU sets: the shared pool shrinks when CPUs are assigned to an exclusive container, and every
// container in the pool must leave them before that container starts:
//
//	commit of the assignment
//	  -> Enter(exclusive container) joins the next round:
//	       containers being created with an older pool are waited for,
//	       then every container whose set differs from what is wanted is updated
//	  -> CreateContainer, StartContainer
//
// Run does one round after the other. A round serves all callers that joined before it began, so
// that many exclusive containers at a time cost few rounds.
//
// The actual sets come from the kernel: each round reads one small file in each container's cgroup.
// If that is not possible, the runtime's report and later updates count. In steady state nothing is
// updated. A round also compares the memory nodes that a container was created with, and the CPU
// quota of exclusive containers and their pods, which have no quota while their CPUs are exclusive.
// Other requests and limits are only changed when the spec as allocated changes: what another
// program, or a plugin of the runtime, makes of them stays. No caller waits for any of these.
//
// All changes of containers go through the runtime, which would undo other changes. A change
// without effect is repeated after a growing delay.
//
// Groups keeps the cgroups above the pods.
package resources
