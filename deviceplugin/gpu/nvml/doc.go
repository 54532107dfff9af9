// Package nvml is the real driver for package gpu: NVIDIA's management library, through go-nvml. It
// needs cgo; without, it is empty.
package nvml
