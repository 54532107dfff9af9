package handlers

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// ReasonNoVolume is the reason of pods that ask for volumes which this version does not bring.
const ReasonNoVolume = "VolumeNotSupported"

// Volumes refuses pods whose volumes cannot be had. They wait without anything of the node, unless no
// version will have such volumes: never. unsupported says which and why, nil if all of a pod's can be.
func Volumes(unsupported func(*v1.Pod) (never bool, err error)) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if never, err := unsupported(a.Pod); err != nil {
			return &decide.Refusal{Reason: ReasonNoVolume, Wait: !never, Message: err.Error()}
		}
		return nil
	}
}
