package handover

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
)

// taken is what pods that were read hold. It refuses a second owner of CPUs and devices.
type taken struct{ allocation.Taken }

// claim adds what the pod holds, or says what of it is taken.
func (t *taken) claim(p allocation.Pod) error {
	if err := t.refuse(allocation.TakenBy(p)); err != nil {
		return err
	}
	t.take(p)
	return nil
}

// refuse says what of the other's CPUs and devices is taken.
func (t *taken) refuse(own allocation.Taken) error {
	if both := t.CPUs.Intersection(own.CPUs); !both.IsEmpty() {
		return fmt.Errorf("CPUs %s belong to another pod", both)
	}
	for resource, ids := range own.Devices {
		if both := t.Devices[resource].Intersection(ids); both.Len() > 0 {
			return fmt.Errorf("%s %v belong to another pod", resource, sets.List(both))
		}
	}
	return nil
}

// take adds what the pod holds, whoever else does.
func (t *taken) take(p allocation.Pod) {
	own := allocation.TakenBy(p)
	t.CPUs = t.CPUs.Union(own.CPUs)
	t.Memory = append(t.Memory, own.Memory...)
	for resource, ids := range own.Devices {
		t.Devices[resource] = t.Devices[resource].Union(ids)
	}
}

// extend adds what a pod holds beyond what it held before, or says what of it is taken.
func (t *taken) extend(before, after allocation.Pod) error {
	had, has := allocation.TakenBy(before), allocation.TakenBy(after)
	others := taken{allocation.Taken{
		CPUs: t.CPUs.Difference(had.CPUs), Devices: map[string]sets.Set[string]{},
	}}
	for resource, ids := range t.Devices {
		others.Devices[resource] = ids.Difference(had.Devices[resource])
	}
	if err := others.refuse(has); err != nil {
		return err
	}
	t.take(after)
	return nil
}
