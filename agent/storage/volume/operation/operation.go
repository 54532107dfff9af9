// Package operation names the steps in the life of a volume as the kubelet's metrics and messages do, and says
// how a step ends. All types of volumes share it.
package operation

import (
	"errors"
	"time"
)

// Done is a step in the life of a volume that was carried out.
type Done struct {
	// Plugin is the name of the volume's type, with the driver: kubernetes.io/csi:DRIVER.
	Plugin, Name string
	Migrated     bool // the API has the volume as one of an in-tree type
	Took         time.Duration
	Err          error
}

// Names of operations.
const (
	Mount       = "volume_mount"
	Map         = "map_volume"
	Unmount     = "volume_unmount"
	Unmap       = "unmap_volume"
	Unstage     = "unmount_device"
	UnstageMap  = "unmap_device"
	Verify      = "verify_controller_attached_volume"
	Resize      = "volume_fs_resize"
	ApplyAccess = "volume_apply_access_control"
	// Reconstruct is to find out, when the agent begins, what an earlier run has made, and ForceClean to
	// remove a volume for which that failed.
	Reconstruct = "reconstruct"
	ForceClean  = "force_clean"
	// Overall is not an operation of its own: it took from the time when the volume was wanted until it was
	// mounted.
	Overall = "overall_volume_mount"
)

// Names of parts of Mount and Map in messages. They are not counted.
const (
	WaitForAttach  = "WaitForAttach"
	MountDevice    = "MountDevice"
	MapBlockVolume = "MapBlockVolume"
)

// Error names the part of an operation that failed.
type Error struct {
	Part string
	Err  error
	// Unattached: no attempt was made, since the attacher has not attached the volume.
	Unattached bool
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *Error) Unwrap() error { return e.Err }

// Failed names the part that failed, unless the error does.
func Failed(part string, err error) error {
	if _, named := errors.AsType[*Error](err); named {
		return err
	}
	return &Error{Part: part, Err: err}
}

// IsUnattached reports whether a volume was not made because its attacher has not attached it.
func IsUnattached(err error) bool {
	part, is := errors.AsType[*Error](err)
	return is && part.Unattached
}

// Unanswered is the error of a request that the API server, or a driver, did not answer: what was
// known before still counts, and the volume may be good.
type Unanswered struct{ Err error }

func (u Unanswered) Error() string { return u.Err.Error() }

// Unwrap returns the request's error.
func (u Unanswered) Unwrap() error { return u.Err }

// IsUnanswered reports whether a request was not answered.
func IsUnanswered(err error) bool {
	_, is := errors.AsType[Unanswered](err)
	return is
}
