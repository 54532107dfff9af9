// Package devices lists the devices of the node, and has people say which of them are not to be
// given to new containers.
package devices
