package cri

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// PreStop is the hook that a container wants run before it is stopped, with its definition; nil: it
// has none. Of a container that the pod's spec does not have it is what either agent has written
// on it.
func PreStop(pod *v1.Pod, c Container) (*v1.Container, *v1.LifecycleHandler) {
	if spec, _ := podspec.Find(pod, c.Name); spec != nil {
		if spec.Lifecycle == nil {
			return spec, nil
		}
		return spec, spec.Lifecycle.PreStop
	}
	text := c.Annotations[AnnotationPreStopHandler]
	if text == "" {
		return nil, nil
	}
	spec, hook := &v1.Container{Name: c.Name}, &v1.LifecycleHandler{}
	if json.Unmarshal([]byte(text), hook) != nil {
		return nil, nil // nobody is left who could mend it
	}
	// Without its ports only a hook that names one does not succeed.
	_ = json.Unmarshal([]byte(c.Annotations[AnnotationContainerPorts]), &spec.Ports)
	return spec, hook
}
