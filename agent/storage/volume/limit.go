package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
)

// unmade is the error of a volume that could not be made.
type unmade struct {
	volume string // in the pod's spec
	error
}

// Unwrap returns the cause.
func (u unmade) Unwrap() error { return u.error }

// IsUsual reports whether nothing is wrong so far with volumes that could not be made, or nothing new:
// they wait to be attached, or for a pause to be over.
func IsUsual(err error) bool {
	switch e := err.(type) {
	case interface{ Usual() bool }:
		return e.Usual()
	case *cri.PausedError:
		return e.Repeated
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(one error) bool { return !IsUsual(one) })
	case interface{ Unwrap() error }:
		return IsUsual(e.Unwrap())
	}
	return false
}

// limit gives up a pod that has waited long while the node takes no more volumes of a driver. As the
// kubelet does, it leaves it to others to make the pod anew, maybe on a node with room.
func (v *Volumes) limit(pod *v1.Pod, err error) {
	full := fullness(err)
	if full == nil || !full.Lasts() || v.node.cfg.Limit == nil || !v.operations.refuse(pod.UID) {
		return
	}
	v.node.cfg.Limit(pod, Limit(err))
}

// Limit says in the kubelet's words that the node takes no more volumes of a driver, if that is among
// the reasons why volumes could not be made; else "".
func Limit(err error) string {
	if fullness(err) == nil {
		return ""
	}
	var left, unattached, unknown []string
	for _, one := range cri.Parts(err) {
		if not, is := errors.AsType[notProcessed](one); is {
			left, unknown = append(left, not.volumes...), append(unknown, not.volumes...)
		}
		of, is := errors.AsType[unmade](one)
		if !is {
			continue
		}
		left = append(left, of.volume)
		if operation.IsUnattached(one) {
			unattached = append(unattached, of.volume)
		}
	}
	slices.Sort(left)
	slices.Sort(unattached)
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=%v, "+
		"unattached volumes=%v, failed to process volumes=%v: %v", left, unattached, unknown,
		context.DeadlineExceeded)
}

// full is the error of a volume that is one too many for the node.
type full interface {
	error
	// Lasts reports whether the pod has waited as long as the kubelet has a pod wait for its volumes.
	Lasts() bool
}

// fullness returns that a volume is one too many for the node, of all that could not be made; nil: none
// is.
func fullness(err error) full {
	for _, one := range cri.Parts(err) {
		if full, is := errors.AsType[full](one); is {
			return full
		}
	}
	return nil
}
