// Package podresources tells monitoring agents which CPUs, memory and devices the node's pods hold.
// It serves the kubelet's gRPC service PodResourcesLister v1 and v1alpha1 (KEP-606, KEP-2043,
// KEP-3695), and our PodResourcesWatcher, on <root>/pod-resources/kubelet.sock.
//
// Answers are pure functions of a Snapshot. They contain only active pods; cpu_ids are exclusive
// CPUs. Dynamic resources are not supported yet and stay empty.
//
// # Watching
//
//	Snapshot --refresh--> state of generation g+1, compared with that of g --> change
//	                            |                                               |
//	              List, the beginning of a watch                 history: the latest changes
//	                                                                            ^
//	                          reader: the generation it has told its client ----'
//
// Each call refreshes; while there are watches, so does each possible change. A refresh compares,
// appends to the history and waits for no reader: a reader is only a position in the history. A
// reader whose position was dropped is disconnected; its client reconnects and gets the state. A
// client that was disconnected for another reason continues at its position.
package podresources
