package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

func TestFieldPath(t *testing.T) {
	pod := podtest.New("", podtest.Containers("init!", "aside~", "main", "debug?"))
	for name, want := range map[string]string{
		"init": "spec.initContainers{init}", "aside": "spec.initContainers{aside}",
		"main": "spec.containers{main}", "debug": "spec.ephemeralContainers{debug}", "none": "",
	} {
		if got := (Ref{pod, name}).FieldPath(); got != want {
			t.Errorf("%s stands at %q, want %q", name, got, want)
		}
	}
}

// Of what the API server has for the node, the mirror pods are never run; the list stays as it is.
func TestWithoutMirrors(t *testing.T) {
	shown, run := podtest.New("a", podtest.Annotations(AnnotationMirror, "")), podtest.New("b")
	all := []*v1.Pod{shown, run}
	if got := WithoutMirrors(all); len(got) != 1 || got[0] != run || all[0] != shown {
		t.Errorf("%v are to run", got)
	}
}
