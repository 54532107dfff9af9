package csi

import "time"

// Operation is a step in the life of a volume that was carried out, as the kubelet's metrics name it.
type Operation struct {
	// Plugin is the name of the volume's type, with the driver: kubernetes.io/csi:DRIVER.
	Plugin, Name string
	Migrated     bool // the API has the volume as one of an in-tree type
	Took         time.Duration
	Err          error
}

// Names of operations.
const (
	OperationMount       = "volume_mount"
	OperationMap         = "map_volume"
	OperationUnmount     = "volume_unmount"
	OperationUnmap       = "unmap_volume"
	OperationUnstage     = "unmount_device"
	OperationUnstageMap  = "unmap_device"
	OperationVerify      = "verify_controller_attached_volume"
	OperationResize      = "volume_fs_resize"
	OperationApplyAccess = "volume_apply_access_control"
	// OperationReconstruct is to find out, when the agent begins, what an earlier run has made, and
	// OperationForceClean to remove a volume for which that failed.
	OperationReconstruct = "reconstruct"
	OperationForceClean  = "force_clean"
	// OperationOverall is not an operation of its own: it took from the time when the volume was wanted
	// until it was mounted.
	OperationOverall = "overall_volume_mount"
)

// FullName returns the type's name of a driver's volumes, as in metrics.
func FullName(driver string) string { return pluginName + ":" + driver }

// did reports an operation that began then. It is deferred with the function's error.
func (m *Mounts) did(k Key, name string, began time.Time, err error) {
	m.cfg.Done(Operation{Plugin: FullName(k.Driver), Name: name, Took: time.Since(began), Err: err})
}
