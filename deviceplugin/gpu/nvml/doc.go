// Package nvml is the real driver for package gpu: it calls NVIDIA's management library through
// go-nvml. It needs cgo; without cgo it is empty.
package nvml
