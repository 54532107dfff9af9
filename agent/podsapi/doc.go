// Package podsapi serves the kubelet's Pods API on a unix socket: the pods of the node with their
// statuses, to programs on the node that need not ask the API server for them (KEP-4188).
package podsapi
