package handover

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
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
func DescribePod(pod *v1.Pod, held allocation.Pod) (string, error) {
	order := make([]string, 0, len(held.Containers))
	for c := range podspec.Containers(pod) {
		order = append(order, c.Name)
	}
	text, err := describedPod(held, order)
	if len(text) <= longest {
		return text, err
	}
	held.Containers = allocation.WithoutAnswers(held.Containers)
	for ; err == nil; order = order[:len(order)-1] {
		if text, err = describedPod(held, order); len(text) <= longest {
			break
		}
	}
	return text, err
}

// describedPod is the annotation with what these containers hold.
func describedPod(held allocation.Pod, names []string) (string, error) {
	some := held
	some.Containers = map[string]allocation.Container{}
	for _, name := range names {
		some.Containers[name] = held.Containers[name]
	}
	if some.IsEmpty() {
		return "", nil
	}
	raw, err := json.Marshal(some)
	if err != nil {
		return "", fmt.Errorf("describe the assignment of pod %s: %w", held.UID, err)
	}
	return string(raw), nil
}

// SandboxAnnotation is what the pod's ready sandbox says of containers that were not created in it
// and do not run, nil if it says nothing. Answers of another boot are left out.
func SandboxAnnotation(observed cri.Pod, bootID string) (map[string]allocation.Container, error) {
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
	var p allocation.Pod
	err := json.Unmarshal([]byte(text), &p)
	if err == nil && p.UID != observed.UID {
		err = fmt.Errorf("it is of pod %q", p.UID)
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
		p.Containers = allocation.WithoutAnswers(p.Containers)
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
		p = allocation.Pod{
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
			next.Containers = map[string]allocation.Container{}
		}
		next.Containers[name] = later[name]
		if err := r.claim(next); err != nil {
			r.failed(p, fmt.Errorf("container %s, not created yet: %w", name, err))
			continue
		}
		p, added = next, true
	}
	if added && !p.IsEmpty() {
		r.note(p)
	}
}
