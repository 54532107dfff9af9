// Package discover reads a machine and returns it as a topology.Machine: the host itself (Host), a
// captured or invented machine (Open), or a built-in one (Fixture).
//
// # Sources
//
// CPUs, nodes, caches, memory and PCI devices are read from sysfs and /proc below a root directory,
// through an os.Root, so that no link in a captured tree leads out of it. ghw provides the
// snapshots (capture, format, content) and, through its pcidb, the names of PCI devices. Its own
// readers are not used for the rest, because as of v0.26 they give up silently where an agent must
// not: one unreadable attribute ends the list of nodes or empties the list of PCI devices, a host
// without pci.ids has no PCI devices at all, offline CPUs disappear, and an empty file panics.
// Where they do answer, the tests hold this package to the same answer.
//
// # Conventions
//
//   - A machine without NUMA in sysfs has one node 0 with all CPUs and the memory of /proc/meminfo.
//   - The core of a CPU is the lowest id in its thread_siblings_list.
//   - Its last-level cache is the level 3 cache; without one, the cache of the highest level;
//     without any, the socket.
//   - The kernel forgets the core, caches and package of an offline CPU. It becomes a core and a cache
//     group of its own, on the socket of its node if the node has only one.
//   - A PCI device on a node that does not exist is on topology.NoNode. Its path is that of its link in
//     sys/bus/pci/devices.
package discover
