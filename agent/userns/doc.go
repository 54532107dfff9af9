// Package userns gives pods with a user namespace (spec.hostUsers: false, KEP-127) ranges of the
// host's ids, one range to a pod for as long as anything of it is on the node.
//
// A range is written to the file userns in the pod's directory before anything is made with it, in
// the kubelet's form, so that either agent finds what the other gave. The files are read once, when
// the agent starts. A file that cannot be read says nothing of its pod's range: that pod starts no
// more containers, and since ranges are given in turn from a random one on, hardly any other pod
// gets the same.
package userns
