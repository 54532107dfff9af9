package csinodes

import (
	"cmp"
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi"
)

// putHealth writes what drivers say of their storage into the CSINode's status.
func (w *Writer) putHealth(ctx context.Context, node string, drivers []storagev1.CSINodeDriver) error {
	said := map[string][]storagev1.StorageHealthCondition{}
	for _, d := range drivers {
		if w.cfg.Health == nil {
			break
		}
		if conditions, known := w.cfg.Health(d.Name); known {
			said[d.Name] = conditions
		}
	}
	if len(said) == 0 {
		return nil
	}
	api := w.cfg.Client.StorageV1().CSINodes()
	has, err := api.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	all, differs := withHealth(has.Status.StorageHealth, said)
	if !differs {
		return nil
	}
	has.Status.StorageHealth = all
	_, err = api.UpdateStatus(ctx, has, metav1.UpdateOptions{})
	return err
}

// withHealth returns the health of storage with what drivers say of theirs, sorted by driver, and
// whether it is another one. Drivers that have said nothing keep what is there.
func withHealth(has []storagev1.StorageHealth, said map[string][]storagev1.StorageHealthCondition) (
	out []storagev1.StorageHealth, differs bool) {
	for _, one := range has {
		now, known := said[one.Name]
		delete(said, one.Name)
		switch {
		case !known || csi.SameStorage(one.HealthConditions, now):
			out = append(out, one)
			continue
		case len(now) > 0:
			out = append(out, storagev1.StorageHealth{Name: one.Name, HealthConditions: now})
		}
		differs = true
	}
	for name, now := range said {
		if len(now) > 0 {
			out, differs = append(out, storagev1.StorageHealth{Name: name, HealthConditions: now}), true
		}
	}
	slices.SortFunc(out, func(a, b storagev1.StorageHealth) int { return cmp.Compare(a.Name, b.Name) })
	return out, differs
}
