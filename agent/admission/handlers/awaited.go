package handlers

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of pods that ask for what this version does not bring.
const (
	ReasonNoVolume = "VolumeNotSupported"
	ReasonNoClaim  = "ResourceClaimNotSupported"
)

// Claims has pods with resource claims wait without anything of the node: there are none yet, and
// what such a pod held others could not have.
func Claims(a decide.Attempt) *decide.Refusal {
	what := podspec.Awaited(a.Pod)
	if what == "" {
		return nil
	}
	return &decide.Refusal{
		Reason: ReasonNoClaim, Wait: true,
		Message: what + " is not supported yet; a pod without resource claims would be admitted",
	}
}

// Volumes has pods wait without anything of the node whose volumes cannot be had; unsupported says
// which and why, nil if all of a pod's can be.
func Volumes(unsupported func(*v1.Pod) error) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if err := unsupported(a.Pod); err != nil {
			return &decide.Refusal{Reason: ReasonNoVolume, Wait: true, Message: err.Error()}
		}
		return nil
	}
}
