// Package examples holds the manifests that the playground admits.
package examples

import "embed"

// Simulated are the pods for the simulated machine and runtime, one file each.
//
//go:embed *.yaml
var Simulated embed.FS

// Containerd are the pods for a real containerd on a machine as small as two CPUs; they use the
// images that the playground makes of its own binary.
//
//go:embed containerd/*.yaml
var Containerd embed.FS
