package csi

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Translate returns the volume of a CSI driver that a persistent volume of an in-tree type stands
// for, or the volume itself.
func Translate(pv *v1.PersistentVolume) (out *v1.PersistentVolume, migrated bool, err error) {
	t := translation.New()
	if !t.IsPVMigratable(pv) {
		return pv, false, nil
	}
	out, err = t.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil {
		return nil, true, fmt.Errorf("persistent volume %q cannot be had from a CSI driver: %w",
			pv.Name, err)
	}
	return out, true, nil
}

// TranslateInline returns the volume of a CSI driver that a volume of an in-tree type in a pod's
// spec stands for; nil: it is of another type.
func TranslateInline(volume v1.Volume, namespace string) (*v1.PersistentVolume, error) {
	t := translation.New()
	if !t.IsInlineMigratable(&volume) {
		return nil, nil
	}
	pv, err := t.TranslateInTreeInlineVolumeToCSI(klog.Background(), &volume, namespace)
	if err != nil {
		return nil, fmt.Errorf("volume %q cannot be had from a CSI driver: %w", volume.Name, err)
	}
	return pv, nil
}
