// Package userns gives pods with a user namespace (spec.hostUsers: false, KEP-127) ranges of the
// host's ids, one range for each pod as long as anything of it is on the node.
//
// Before its first use a range is written to the file userns in the pod's directory, in the
// kubelet's format, so that each agent finds the other's ranges. The files are read once, when the
// agent starts. Adopt then takes the ranges of running pods from their sandboxes, whatever the files
// say, and writes these again. If a pod does not run, or its runtime does not tell, and its file
// cannot be read, its range is unknown and it starts no more containers. Since ranges are given in
// turn from a random start, hardly any other pod gets the same range.
package userns
