package handlers

import (
	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/source"
)

// Flaws refuses pods of the API server that break a rule which the node relies on. Manifests are
// refused when they are read.
func Flaws(a decide.Attempt) *decide.Refusal {
	if a.Pod.Annotations[source.AnnotationSource] != source.APISource {
		return nil
	}
	if why := source.Flaw(a.Pod); why != "" {
		return &decide.Refusal{Reason: source.FailedValidation, Message: why}
	}
	return nil
}
