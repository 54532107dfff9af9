package handlers

import (
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/pods/source"
)

// Flaws refuses pods of the API server that break a rule which the node relies on. Manifests are
// refused when they are read.
func Flaws(gates source.Gates) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if a.Pod.Annotations[source.AnnotationSource] != source.APISource {
			return nil
		}
		if why := source.Flaw(a.Pod, gates); why != "" {
			return &decide.Refusal{Reason: source.FailedValidation, Message: why}
		}
		return nil
	}
}
