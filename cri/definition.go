package cri

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// StartedFrom reports whether any agent may have started the runtime's pod from this definition:
// nothing on its newest sandbox and its containers contradicts it. It compares the pod's
// annotations and, of each container, the name, image, ports, preStop hook, grace period and
// termination message, as AnnotationHash and its neighbours record them. Fields that agents record in no
// annotation, such as the environment, are not compared.
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

// lasting returns the annotations without those that an agent adds.
func lasting(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return strings.HasPrefix(key, "kubernetes.io/config.") ||
			strings.HasPrefix(key, "numalet.io/")
	})
	return out
}
