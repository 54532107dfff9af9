package handover

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// DescribePod returns the value of Annotation for the pod's sandbox; "": the pod holds nothing. It
// says what containers hold that are not created yet. It is written once, so a container's
// annotation is newer.
//
// If the value is too long, DescribePod leaves out the plugins' answers, so that Allocate has to
// be called again after a loss of the state. If it is still too long, it leaves out the containers
// that start last, which are then placed anew.
func DescribePod(pod *v1.Pod, held allocation.Pod) (string, error) {
	order := append(make([]string, 0, len(held.Containers)), allocation.WholePod)
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

// describedPod returns the annotation for these containers.
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

// SandboxAnnotation returns what the pod's ready sandbox says of the pod as a whole, and of containers that
// were not created in it and do not run; nil: nothing. It leaves out answers of another boot.
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

// addUncreated adds the holdings that the pod's sandbox names for containers that were not created
// yet, except what another pod holds by now. It adds nothing if the state agrees with all
// containers: then the state is newer than the sandbox.
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
