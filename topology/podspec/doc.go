// Package podspec reads what a pod's spec asks for: its containers in the order in which they
// start, the devices and the amounts that they request, and its QoS class. It is pure and knows
// nothing but the API's types.
//
// It lies beside topology because it is the other half of every placement: topology describes what
// a machine has, a spec what a pod demands of it. All who hand something out (CPUs, memory,
// devices, cgroups) and all who tell of it import this package, and agree that way on which
// container runs beside which.
//
// A pod is expected to be defaulted: a limit without a request is also the request.
package podspec
