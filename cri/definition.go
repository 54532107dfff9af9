package cri

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
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
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			defined[list[i].Name] = &list[i]
		}
	}
	seen := map[string]bool{}
	for _, c := range observed.Containers { // newest first
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		if defined[c.Name] == nil {
			return false
		}
		want := containerAnnotations(pod, defined[c.Name], 0, map[string]string{})
		delete(want, AnnotationRestartCount)
		for key, value := range want {
			if c.Annotations[key] != value {
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
