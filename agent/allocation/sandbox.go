package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// DescribePod is the value of Annotation for the pod's sandbox, "" for a pod that holds nothing:
// what containers hold that are not created yet, so that it is known although they carry nothing
// yet. It is written once: what a container carries is newer.
//
// If it would be too long the plugins' answers are left out, so that Allocate has to be called
// again after a loss of the state, and if it still is, the containers that start last: these are
// placed anew then.
func DescribePod(pod *v1.Pod, held Pod) (string, error) {
	order := make([]string, 0, len(held.Containers))
	for c := range podspec.Containers(pod) {
		order = append(order, c.Name)
	}
	text, err := describedPod(held, order)
	if len(text) <= longest {
		return text, err
	}
	held.Containers = WithoutAnswers(held.Containers)
	for ; err == nil; order = order[:len(order)-1] {
		if text, err = describedPod(held, order); len(text) <= longest {
			break
		}
	}
	return text, err
}

// describedPod is the annotation with what these containers hold.
func describedPod(held Pod, names []string) (string, error) {
	some := held
	some.Containers = map[string]Container{}
	for _, name := range names {
		some.Containers[name] = held.Containers[name]
	}
	if some.IsEmpty() {
		return "", nil
	}
	raw, err := json.Marshal(encodePod(some))
	if err != nil {
		return "", fmt.Errorf("describe the assignment of pod %s: %w", held.UID, err)
	}
	return string(raw), nil
}

// WithoutAnswers are the containers with their devices as intent: Allocate has to be called.
func WithoutAnswers(containers map[string]Container) map[string]Container {
	out := make(map[string]Container, len(containers))
	for name, c := range containers {
		c.Devices = slices.Clone(c.Devices)
		for i := range c.Devices {
			c.Devices[i].Answer = nil
		}
		out[name] = c
	}
	return out
}

// SandboxAnnotation is what the pod's ready sandbox says of containers that were not created in it
// and do not run, nil if it says nothing. Answers of another boot are left out.
func SandboxAnnotation(observed cri.Pod, bootID string) (map[string]Container, error) {
	sandbox, text := cri.Sandbox{}, ""
	for _, s := range observed.Sandboxes { // newest first
		if s.Ready {
			sandbox, text = s, s.Annotations[Annotation]
			break
		}
	}
	if text == "" {
		return nil, nil
	}
	var fp filePod
	err := json.Unmarshal([]byte(text), &fp)
	if err == nil && fp.UID != observed.UID {
		err = fmt.Errorf("it is of pod %q", fp.UID)
	}
	var p Pod
	if err == nil {
		p, err = decodePod(fp)
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: annotation %s: %w", sandbox.ID, Annotation, err)
	}
	for _, c := range observed.Containers {
		if c.SandboxID == sandbox.ID || c.State == cri.ContainerRunning {
			delete(p.Containers, c.Name)
		}
	}
	if p.BootID != bootID {
		p.Containers = WithoutAnswers(p.Containers)
	}
	return p.Containers, nil
}

// addUncreated adds to a pod of which the state says nothing, or something of another time, what
// its sandbox says of containers that were not created yet. A state that agrees with all containers
// is newer than the sandbox. What others have by now is not had.
func (r *rebuilding) addUncreated(observed cri.Pod) {
	p, changed := r.put[observed.UID]
	if !observed.Running() || r.known.Has(observed.UID) && !changed {
		return
	}
	if !changed {
		p = Pod{
			UID: observed.UID, Namespace: observed.Namespace, Name: observed.Name, BootID: r.bootID,
		}
	}
	later, err := SandboxAnnotation(observed, r.bootID)
	if err != nil {
		r.failed(p, err)
	}
	added := false
	for _, name := range slices.Sorted(maps.Keys(later)) {
		next := p
		next.Containers = maps.Clone(p.Containers)
		if next.Containers == nil {
			next.Containers = map[string]Container{}
		}
		next.Containers[name] = later[name]
		if err := r.taken.extend(p, next); err != nil {
			r.failed(p, fmt.Errorf("container %s, not created yet: %w", name, err))
			continue
		}
		p, added = next, true
	}
	if added && !p.IsEmpty() {
		r.note(p)
	}
}

// extend adds what a pod holds beyond what it held before, or says what of it is taken.
func (t *Taken) extend(before, after Pod) error {
	had, has := TakenBy(before), TakenBy(after)
	others := Taken{CPUs: t.CPUs.Difference(had.CPUs), Devices: map[string]sets.Set[string]{}}
	for resource, ids := range t.Devices {
		others.Devices[resource] = ids.Difference(had.Devices[resource])
	}
	if err := others.refuse(has); err != nil {
		return err
	}
	t.take(after)
	return nil
}
