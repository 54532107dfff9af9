// Package kernel reads what the kernel counts: for a cgroup, in the files of version 1 or 2, and
// for the machine, in /proc. It remembers no counts, and opens nothing that can block.
package kernel
