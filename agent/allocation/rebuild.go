package allocation

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

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

// Account is one record of what a pod of the runtime holds, by container; empty when it has none.
type Account func(observed cri.Pod) (map[string]Container, error)

// Rebuild finds what pods that run hold and the state does not know, by the accounts: the first
// that has something of a pod counts, and what an earlier account says of any pod comes before what
// a later one says. The changes are to be committed; bootID is that of the boot that the pods run
// in. The error lists what cannot be read or conflicts; the rest is good all the same.
func Rebuild(s State, pods []cri.Pod, bootID string, accounts ...Account) ([]Change, error) {
	var changes []Change
	var errs []error
	taken, known := TakenBy(s.List()...), sets.KeySet(s.Pods)
	for _, account := range accounts {
		for _, observed := range pods {
			if known.Has(observed.UID) || !observed.Running() {
				continue
			}
			p := Pod{
				UID: observed.UID, Namespace: observed.Namespace, Name: observed.Name, BootID: bootID,
			}
			var err error
			if p.Containers, err = account(observed); err == nil && !p.IsEmpty() {
				err = taken.claim(p)
			}
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("pod %s/%s: %w", observed.Namespace, observed.Name, err))
			case !p.IsEmpty():
				known.Insert(p.UID)
				changes = append(changes, Change{Put: p})
			}
		}
	}
	return changes, errors.Join(errs...)
}

// Annotated is the account that is on the containers themselves: the newest of each name counts.
func Annotated(observed cri.Pod) (map[string]Container, error) {
	out := map[string]Container{}
	for _, c := range observed.Containers { // newest first
		text, ok := c.Annotations[Annotation]
		if _, newer := out[c.Name]; newer || !ok {
			continue
		}
		var fc fileContainer
		if err := json.Unmarshal([]byte(text), &fc); err != nil {
			return nil, fmt.Errorf("container %s: annotation %s: %w", c.Name, Annotation, err)
		}
		held, err := decodeContainer(fc)
		if err != nil {
			return nil, fmt.Errorf("container %s: annotation %s: %w", c.Name, Annotation, err)
		}
		out[c.Name] = held
	}
	return out, nil
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
