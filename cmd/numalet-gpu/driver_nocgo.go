//go:build !cgo

package main

import (
	"errors"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

func realDriver(gpu.DriverFiles) (gpu.Driver, error) {
	return nil, errors.New("this binary was built without a C compiler and has no way to the " +
		"NVIDIA driver: build it with CGO_ENABLED=1 and gcc, or name a machine with --mock")
}
