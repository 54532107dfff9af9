// Package nrt tells schedulers what is free on each NUMA node. It maintains the node's
// NodeResourceTopology (topology.node.k8s.io/v1alpha2) in the API server, which the scheduler
// plugin NodeResourceTopologyMatch and others read.
//
//	Facts (what there is, what pods hold) -> Object (pure) -> apply, if it is another
//
// The object is owned by the Node and deleted with it. If the cluster lacks the kind, or the node
// the right, nothing is written, and it is tried again, less and less often.
package nrt
