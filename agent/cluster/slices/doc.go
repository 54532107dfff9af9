// Package slices follows this node's ResourceSlices and says where the devices of resource claims
// are.
//
// A driver publishes the devices of a pool in one or more slices of the same generation. Only the
// newest generation counts. While some of its slices are missing, devices that none of them has are
// as the last complete generation had them, so that a device in use keeps its place while its driver
// publishes anew.
//
// Slices of devices that are not on one node are not followed: a node may not list them. Their
// devices have no place.
//
// As the kubelet does, the package deletes the node's slices when it starts, and those of a driver that
// has had no usable plugin for a while: a scheduler would place pods whose claims nothing here can
// prepare. Unlike the kubelet's, the first deletion spares drivers that have registered by then: it
// waits for the node's object, and a driver need not.
//
// A cluster without the API costs one request every few minutes.
package slices
