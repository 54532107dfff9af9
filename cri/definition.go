package cri

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// StartedFrom reports whether the runtime's pod may have been started from the definition, by
// whatever agent: nothing that its newest sandbox and its containers carry says otherwise. That is
// the pod's annotations, and of each container those that AnnotationHash and its neighbours tell:
// name, image, ports, the hook before the stop, the grace period, the termination message. What an
// agent leaves in no annotation, the environment for one, is not compared.
func StartedFrom(pod *v1.Pod, observed Pod) bool {
	if len(observed.Sandboxes) == 0 ||
		!maps.Equal(lasting(observed.Sandboxes[0].Annotations), lasting(pod.Annotations)) {
		return false
	}
	defined := map[string]*v1.Container{}
	for c := range podspec.Containers(pod) {
		defined[c.Name] = c
	}
	for name, attempts := range observed.Records() {
		if defined[name] == nil {
			return false
		}
		want := containerAnnotations(pod, defined[name], 0, map[string]string{})
		delete(want, AnnotationRestartCount)
		for key, value := range want {
			if attempts[0].Annotations[key] != value {
				return false
			}
		}
	}
	return true
}

// lasting are the annotations but those that an agent adds on its own.
func lasting(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return strings.HasPrefix(key, "kubernetes.io/config.") ||
			strings.HasPrefix(key, "numalet.io/")
	})
	return out
}
