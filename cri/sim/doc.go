// Package sim is a container runtime that runs nothing: a CRI v1 server whose sandboxes and
// containers are entries in a map. An agent cannot tell it from containerd by its answers; it is
// for playgrounds, for plugin authors, for tests and for scale.
//
// # What containers do
//
// A container runs until it is stopped; on StopContainer it exits at once with 143. Another
// behaviour (see Script) is taken from the first of:
//
//   - the pod annotation sim.numalet.io/<container>, for example "exit=1 after=1ms";
//   - the command, if it is made of sleep, exit, true, false, echo and trap, also in a shell:
//     "sh -c 'sleep 2; exit 3'";
//   - an image whose name ends in /exit: "sim.local/exit:3" exits with 3.
//
// An image whose name ends in /missing cannot be pulled. Every other image can, and must be
// before it is used. A pull that has not ended after five minutes fails, as containerd's does.
//
// Devices, mounts and CDI devices that containerd would refuse, or runc, are refused in the same
// call: what plugins answer has to be true of this host. Nothing is made of the host's.
//
// # Streams
//
// Commands in containers (exec) are played: echo, cat, sleep, true, false, exit, size (which prints
// the terminal's size), and sh -c with a list of these, where ">&2" at the end writes to the error
// stream. Attach echoes, and so does a forwarded port, after a line "port N".
//
// # Statistics
//
// What containers use is invented: a constant share of a CPU and amount of memory, by their ids.
//
// # Faults
//
// The runtime can be told, by methods of Server or over HTTP on a unix socket (Client), to delay,
// fail or hang any RPC, to end containers, to lose the event stream, to report that it is not
// ready. It keeps a journal of every call that changes something, in order.
//
// # Locks
//
//	calls ---> faults (wait, own lock) ---> store (one lock, never held while waiting) ---> events
//
// Everything waits outside of locks; store and events only ever take each other's lock in the
// order above.
package sim
