package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/cri"
)

// unmade is the error of a volume that could not be made.
type unmade struct {
	volume string // in the pod's spec
	error
}

// Unwrap returns the cause.
func (u unmade) Unwrap() error { return u.error }

// limit gives up a pod that has waited long while the node takes no more volumes of a driver. As the
// kubelet does, it leaves it to others to make the pod anew, maybe on a node with room.
func (v *Volumes) limit(pod *v1.Pod, err error) {
	full := fullness(err)
	if full == nil || !full.Lasts() || v.cfg.Limit == nil || !v.operations.refuse(pod.UID) {
		return
	}
	v.cfg.Limit(pod, Limit(err))
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
		if part, is := errors.AsType[*csi.OperationError](one); is && part.Operation == csi.OperationAttach {
			unattached = append(unattached, of.volume)
		}
	}
	slices.Sort(left)
	slices.Sort(unattached)
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=%v, "+
		"unattached volumes=%v, failed to process volumes=%v: %v", left, unattached, unknown,
		context.DeadlineExceeded)
}

// fullness returns that a volume is one too many for the node, of all that could not be made; nil: none
// is.
func fullness(err error) *csi.FullError {
	for _, one := range cri.Parts(err) {
		if full, is := errors.AsType[*csi.FullError](one); is {
			return full
		}
	}
	return nil
}
