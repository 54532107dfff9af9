// Package podspec reads what a pod's spec asks for: its containers in the order in which they
// start, the devices and amounts that they request, its QoS class, and whether a container is started
// again; and what its status says of them. It is pure and depends only on the API's types and topology.
//
// It lies beside topology because it is the other half of every placement: topology describes what
// a machine has, a spec what a pod demands. Everything that assigns or reports resources (CPUs,
// memory, devices, cgroups) imports this package, and so agrees on which containers run beside
// which.
//
// It expects a defaulted pod: a limit without a request is also the request.
package podspec
