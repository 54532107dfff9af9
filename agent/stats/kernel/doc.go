// Package kernel reads what the kernel counts: of a cgroup, in the files of version 1 and of
// version 2, and of the machine, in /proc. It keeps nothing, and nothing it opens can block.
package kernel
