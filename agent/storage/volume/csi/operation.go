package csi

import (
	"time"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// fullName returns the type's name of a driver's volumes, as in metrics.
func fullName(driver string) string { return pluginName + ":" + driver }

// did reports an operation that began then. It is deferred with the function's error.
func (m *Mounts) did(k Key, name string, began time.Time, err error) {
	m.cfg.Done(operation.Done{Plugin: fullName(k.Driver), Name: name, Took: time.Since(began), Err: err})
}
