package resize

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Beginnings of the messages of the kubelet's events.
const (
	Started   = "Pod resize started"
	Completed = "Pod resize completed"
	Failed    = "Pod resize error"
)

// Event returns the message of an event about a resize, in the kubelet's form: JSON of the containers'
// resources, of the pod's generation then, and of why it is not carried out.
func Event(what string, pod *v1.Pod, generation int64, why string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	said := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: generation, Error: why}
	for c, kind := range podspec.Containers(pod) {
		if kind == podspec.Regular {
			said.Containers = append(said.Containers, container{c.Name, c.Resources})
		} else {
			said.InitContainers = append(said.InitContainers, container{c.Name, c.Resources})
		}
	}
	raw, err := json.Marshal(said)
	if err != nil {
		return why
	}
	return what + ": " + string(raw)
}
