// Package nrt tells schedulers what is free on which NUMA node: it keeps the node's
// NodeResourceTopology (topology.node.k8s.io/v1alpha2), which the scheduler plugin
// NodeResourceTopologyMatch and others read, at the API server.
//
//	Facts (what there is, what pods hold) -> Object (pure) -> apply, if it is another
//
// The object belongs to the Node and goes with it. Nothing is written while the cluster has no such
// kind or the node has no right to it: that is looked at again, more and more rarely.
package nrt
