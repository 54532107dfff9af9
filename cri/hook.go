package cri

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// PreStop returns the container's preStop hook and the container's spec; nil: it has none. If the
// pod's spec no longer has the container, both come from its annotations.
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
		return nil, nil // the spec is gone: an error could not be corrected
	}
	// Without the ports only a hook that refers to a port by name fails.
	_ = json.Unmarshal([]byte(c.Annotations[AnnotationContainerPorts]), &spec.Ports)
	return spec, hook
}
