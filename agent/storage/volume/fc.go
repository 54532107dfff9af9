package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/scsi"
)

// fc are disks of a Fibre Channel fabric, which the kernel finds when it scans.
func fc() plugin {
	return networkDisks(plugin{field: "fc", name: scsi.FCName, facts: fcFacts}, fcDisks())
}

func fcBlocks() plugin {
	return networkBlocks(plugin{field: "fc", name: scsi.FCName, facts: fcFacts}, fcDisks())
}

func fcDisks() networkType {
	return networkType{request: fcDisk, known: func(u used) (scsi.Disk, error) {
		return scsi.NewFC(fcSource(u))
	}}
}

// fcFacts: the PVC says whether a pod has it read-only, not the persistent volume.
func fcFacts(u used) facts {
	return facts{mounted: true, contexts: true, readOnly: u.pv == nil && u.volume.FC.ReadOnly}
}

func fcSource(u used) *v1.FCVolumeSource {
	if u.pv != nil {
		return u.pv.Spec.FC
	}
	return u.volume.FC
}

func fcDisk(_ context.Context, _ DisksConfig, t target) (networkDisk, error) {
	source := fcSource(t.used)
	disk, err := scsi.NewFC(source)
	return networkDisk{disk, source.FSType}, err
}
