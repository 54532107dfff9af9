// Package crisim is a container runtime that runs nothing: a CRI v1 server whose sandboxes and
// containers are entries in a map. To an agent its answers look like containerd's. It serves
// playgrounds, authors of plugins, tests, and tests of scale.
//
// # What containers do
//
// A container runs until it is stopped; on StopContainer it exits at once with 143. The first of
// these that is present changes this (see Script):
//
//   - the pod annotation sim.numalet.io/<container>, for example "exit=1 after=1ms";
//   - the command, if it is made of sleep, exit, true, false, echo and trap, also in a shell:
//     "sh -c 'sleep 2; exit 3'";
//   - an image whose name ends in /exit: "sim.local/exit:3" exits with 3.
//
// An image whose name ends in /missing cannot be pulled. All other images can, and must be pulled
// before use. A pull fails after five minutes, as containerd's does.
//
// Devices, mounts and CDI devices that containerd or runc would refuse are refused in the same
// call: the answers of plugins must be true on this host. The host's devices themselves are not
// used.
//
// # Streams
//
// Commands in containers (exec) are simulated: echo, cat, sleep, true, false, exit, size (which
// prints the terminal's size), and sh -c with a list of these, where ">&2" at the end writes to the
// error stream. Attach echoes its input. A forwarded port does too, after a line "port N".
//
// # Statistics
//
// Usage is invented: a constant share of a CPU and a constant amount of memory, derived from the
// container's id.
//
// # Faults
//
// Methods of Server, or orders over HTTP on a unix socket (package control), make the runtime
// delay, fail or hang any RPC, end containers, lose the event stream, or report that it is not
// ready. It keeps a journal of every call that changes something, in order.
//
// # Locks
//
//	calls ---> faults (wait, own lock) ---> store (one lock, never held while waiting) ---> events
//
// All waiting happens outside locks; store and events take each other's lock only in the order
// above.
package crisim
