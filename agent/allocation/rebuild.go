package allocation

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/numalet/numalet/cri"
)

// Annotation is on every container that holds anything: what it holds, so that the runtime knows
// it too. The state file comes first; this is for when it is lost.
const Annotation = "numalet.io/assignment"

// Describe is the value of Annotation for a container, "" for one that holds nothing.
func Describe(name string, c Container) (string, error) {
	if c.isEmpty() {
		return "", nil
	}
	raw, err := json.Marshal(encodeContainer(name, c))
	if err != nil {
		return "", fmt.Errorf("describe the assignment of %s: %w", name, err)
	}
	return string(raw), nil
}

// Rebuild finds what pods that run hold and the state does not know, by the annotations of their
// containers: the newest of each name. What a pod before has already is left out. The changes are
// to be committed under the boot that the pods run in. The error lists annotations that cannot
// be read or that conflict; the rest is good all the same.
func Rebuild(s State, pods []cri.Pod, bootID string) ([]Change, error) {
	var changes []Change
	var errs []error
	taken := TakenBy(s.List()...)
	for _, observed := range pods {
		if _, known := s.Pods[observed.UID]; known || !observed.Running() {
			continue
		}
		p, err := described(observed, bootID)
		if err == nil && !p.IsEmpty() {
			err = taken.claim(p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", observed.Namespace, observed.Name, err))
			continue
		}
		if !p.IsEmpty() {
			changes = append(changes, Change{Put: p})
		}
	}
	return changes, errors.Join(errs...)
}

// described reads the annotations of one pod's containers.
func described(observed cri.Pod, bootID string) (Pod, error) {
	p := Pod{
		UID: observed.UID, Namespace: observed.Namespace, Name: observed.Name, BootID: bootID,
		Containers: map[string]Container{},
	}
	for _, c := range observed.Containers { // newest first
		text, ok := c.Annotations[Annotation]
		if _, newer := p.Containers[c.Name]; newer || !ok {
			continue
		}
		var fc fileContainer
		if err := json.Unmarshal([]byte(text), &fc); err != nil {
			return p, fmt.Errorf("container %s: annotation %s: %w", c.Name, Annotation, err)
		}
		held, err := decodeContainer(fc)
		if err != nil {
			return p, fmt.Errorf("container %s: annotation %s: %w", c.Name, Annotation, err)
		}
		p.Containers[c.Name] = held
	}
	return p, nil
}

// claim adds what the pod holds, or says what of it is taken.
func (t *Taken) claim(p Pod) error {
	own := TakenBy(p)
	if both := t.CPUs.Intersection(own.CPUs); !both.IsEmpty() {
		return fmt.Errorf("CPUs %s belong to another pod", both)
	}
	for resource, ids := range own.Devices {
		if both := t.Devices[resource].Intersection(ids); both.Len() > 0 {
			return fmt.Errorf("%s %v belong to another pod", resource, both.UnsortedList())
		}
	}
	t.CPUs = t.CPUs.Union(own.CPUs)
	for resource, ids := range own.Devices {
		t.Devices[resource] = t.Devices[resource].Union(ids)
	}
	return nil
}
