// Package podresources tells monitoring agents which CPUs, memory and devices the node's pods hold:
// the kubelet's gRPC services PodResourcesLister v1 and v1alpha1 (KEP-606, KEP-2043, KEP-3695), and
// PodResourcesWatcher of our own, on <root>/pod-resources/kubelet.sock.
//
// Answers are pure functions of a Snapshot. They hold active pods only; cpu_ids are CPUs of a
// container's own. Dynamic resources are not assigned yet and stay empty.
//
// # Watching
//
//	Snapshot --refresh--> state of generation g+1, compared with that of g --> change
//	                            |                                               |
//	              List, the beginning of a watch                 history: the latest changes
//	                                                                            ^
//	                          reader: the generation it has told its client ----'
//
// A refresh happens at each call and, while somebody watches, when something may have changed. It
// compares, appends and waits for no reader: a reader is but a place in the history. One that is
// overtaken by what is forgotten is ended; its client comes back and gets the state. A client that
// was cut off for another reason goes on where it was.
package podresources
