// Package podsapi serves the kubelet's Pods API on a unix socket: programs on the node get its pods
// with their statuses without asking the API server (KEP-4188).
package podsapi
