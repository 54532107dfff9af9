//go:build cgo

package main

import (
	library "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/nvml"
)

func realDriver(files gpu.DriverFiles) (gpu.Driver, error) {
	return nvml.Driver{Library: library.New(), Files: files}, nil
}
