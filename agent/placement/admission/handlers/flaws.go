package handlers

import (
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/topology/podspec"
)

// Flaws refuses pods of the API server that break a rule which the node relies on. Manifests are
// refused when they are read.
func Flaws(gates manifest.Gates) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if a.Pod.Annotations[podspec.AnnotationSource] != podspec.APISource {
			return nil
		}
		if why := manifest.Flaw(a.Pod, gates); why != "" {
			return &decide.Refusal{Reason: manifest.FailedValidation, Message: why}
		}
		return nil
	}
}
