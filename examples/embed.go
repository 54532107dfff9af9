// Package examples holds the manifests that the playground admits.
package examples

import "embed"

// Simulated are the pods for the simulated machine and runtime, one file each.
//
//go:embed *.yaml
var Simulated embed.FS

// Containerd are the pods for a real containerd on a machine as small as two CPUs; they use the
// images that the playground makes of its own binary. They are in a folder of that name.
//
//go:embed containerd/*.yaml
var Containerd embed.FS

// GPU are the pods for a machine with NVIDIA's GPUs, in a folder of that name; those in the folder more below it
// are for users to drop.
//
//go:embed gpu/*.yaml gpu/more/*.yaml
var GPU embed.FS

// Cluster are the workloads for a node of a cluster, in a folder of that name; those for a real
// containerd, those for NVIDIA's GPUs, and those with claims of these GPUs are in folders
// containerd, gpu and claims below that.
//
//go:embed cluster/*.yaml cluster/containerd/*.yaml cluster/gpu/*.yaml cluster/claims/*.yaml
var Cluster embed.FS

// Claims are further pods with claims of NVIDIA's GPUs and of network interfaces, in a folder of
// that name. No playground starts with them.
//
//go:embed claims/*.yaml
var Claims embed.FS
