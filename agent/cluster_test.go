package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/source"
)

func podFrom(from string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{source.AnnotationSource: from},
	}}
}

// TestFlaws: a pod of the API server that breaks a rule is refused in words, and another source's
// is not looked at.
func TestFlaws(t *testing.T) {
	bad := podFrom(source.APISource)
	bad.Spec.TerminationGracePeriodSeconds = new(int64)
	bad.Spec.SecurityContext = &v1.PodSecurityContext{}
	got := flaws(admission.Attempt{Pod: bad})
	if got == nil || got.Reason != source.FailedValidation || got.Message == "" || got.Wait {
		t.Errorf("a pod without a name, a UID and containers: %+v", got)
	}
	if got := flaws(admission.Attempt{Pod: podFrom(source.FileSource)}); got != nil {
		t.Errorf("a static pod: %+v", got)
	}
}
