// Package gpu is a device plugin for NVIDIA GPUs.
package gpu
