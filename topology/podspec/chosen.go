package podspec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// choice is between the resource and the container in the annotation that chooses a container's
// devices: "example.com/gpu_container-main". A container's name has no underscore.
const choice = "_container-"

// maxChoice bounds the list of one annotation, in bytes.
const maxChoice = 64 << 10

// Chosen are the ids of devices that were chosen for a pod, by container and resource. They are as
// many as the container asks for.
type Chosen map[string]map[string][]string

// ChoiceAnnotation is the annotation that chooses devices of the resource for the container.
func ChoiceAnnotation(resource, container string) string { return resource + choice + container }

// ChosenDevices reads the annotations that choose devices for the pod, if its scheduler is one that
// may. The error is of the first that is not to be followed: it names the annotation and what to do.
func ChosenDevices(pod *v1.Pod, by topology.Choosers) (out Chosen, err error) {
	if !by.May(pod.Namespace, pod.Spec.SchedulerName) {
		return nil, nil
	}
	requested := sets.New(DeviceResources(pod)...)
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		at := strings.LastIndex(key, choice)
		if at < 0 {
			continue
		}
		resource, name := key[:at], key[at+len(choice):]
		container, kind := Find(pod, name)
		if kind == Ephemeral {
			container = nil
		}
		if container == nil && !requested.Has(resource) || !IsExtended(resource) {
			continue // it is about something else
		}
		ids, wrong := chosenFor(pod, name, resource, pod.Annotations[key])
		if wrong != nil && err == nil {
			err = fmt.Errorf("annotation %s: %w", key, wrong)
		}
		if wrong != nil || len(ids) == 0 {
			continue
		}
		if out == nil {
			out = Chosen{}
		}
		if out[name] == nil {
			out[name] = map[string][]string{}
		}
		out[name][resource] = ids
	}
	return out, cmp.Or(err, out.twice(pod))
}

// chosenFor reads the list of one container.
func chosenFor(pod *v1.Pod, name, resource, list string) ([]string, error) {
	c, kind := Find(pod, name)
	if c == nil || kind == Ephemeral {
		return nil, fmt.Errorf("the pod has no container %s; name one that asks for %s", name, resource)
	}
	if len(list) > maxChoice {
		return nil, fmt.Errorf("a list of %d bytes, and at most %d are read; write the ids alone, "+
			"with a comma between them", len(list), maxChoice)
	}
	ids := strings.Split(list, ",")
	if strings.TrimSpace(list) == "" {
		ids = nil
	}
	known := sets.New[string]()
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
		switch {
		case ids[i] == "":
			return nil, fmt.Errorf("%q has an empty device id; write one comma between two ids",
				oneline.Cut(list, 128))
		case known.Has(ids[i]):
			return nil, fmt.Errorf("device %q is named twice; name each once", oneline.Cut(ids[i], 96))
		}
		known.Insert(ids[i])
	}
	want := 0
	for _, r := range DeviceRequests(pod, c) {
		if r.Resource == resource {
			want = r.Count
		}
	}
	if len(ids) != want {
		return nil, fmt.Errorf("%d devices are named, and container %s asks for %d of %s; name as "+
			"many as it asks for, or remove the annotation", len(ids), name, want, resource)
	}
	return ids, nil
}

// twice reports a device that is chosen for two containers that run at the same time.
func (c Chosen) twice(pod *v1.Pod) error {
	if len(c) < 2 {
		return nil
	}
	holder := map[[2]string]string{} // by resource and id, of containers that last
	for container, kind := range Containers(pod) {
		for resource, ids := range c[container.Name] {
			for _, id := range ids {
				key := [2]string{resource, id}
				if other, taken := holder[key]; taken {
					return fmt.Errorf("annotation %s: device %q is chosen for container %s as well, "+
						"which runs at the same time; choose another one",
						ChoiceAnnotation(resource, container.Name), oneline.Cut(id, 96), other)
				}
				if kind != Init {
					holder[key] = container.Name
				}
			}
		}
	}
	return nil
}

// Annotations are those that the choice comes from, in order.
func (c Chosen) Annotations() (keys []string) {
	for container, resources := range c {
		for resource := range resources {
			keys = append(keys, ChoiceAnnotation(resource, container))
		}
	}
	slices.Sort(keys)
	return keys
}

// All are the devices of the resource that are chosen for any container; nil, unless all that the pod
// asks for are chosen.
func (c Chosen) All(pod *v1.Pod, resource string) (ids []string) {
	if len(c) == 0 {
		return nil
	}
	for container := range Containers(pod) {
		asks := slices.ContainsFunc(DeviceRequests(pod, container), func(r DeviceRequest) bool {
			return r.Resource == resource
		})
		chosen := c[container.Name][resource]
		if asks && chosen == nil {
			return nil
		}
		ids = append(ids, chosen...)
	}
	return ids
}
