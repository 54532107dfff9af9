package volume

import (
	"cmp"
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/scsi"
)

// iscsi are LUNs of iSCSI targets, which the host's iscsiadm logs in to.
func iscsi() plugin {
	return networkDisks(plugin{field: "iscsi", name: scsi.ISCSIName, facts: iscsiFacts}, iscsiDisks())
}

func iscsiBlocks() plugin {
	return networkBlocks(plugin{field: "iscsi", name: scsi.ISCSIName, facts: iscsiFacts}, iscsiDisks())
}

func iscsiDisks() networkType {
	return networkType{request: iscsiDisk, known: func(u used) (scsi.Disk, error) {
		return scsi.NewISCSI(u.place().name, iscsiSource(u), nil)
	}}
}

// iscsiFacts: the PVC says whether a pod has it read-only, not the persistent volume.
func iscsiFacts(u used) facts {
	return facts{mounted: true, contexts: true, readOnly: u.pv == nil && u.volume.ISCSI.ReadOnly}
}

func iscsiDisk(ctx context.Context, c DisksConfig, t target) (networkDisk, error) {
	source, name := iscsiSource(t.used), t.volume.Name
	if t.pv != nil {
		name = t.pv.Name
	}
	secret, err := c.chapSecret(ctx, t.pod, source)
	if err != nil {
		return networkDisk{}, err
	}
	disk, err := scsi.NewISCSI(name, source, secret)
	return networkDisk{disk, source.FSType}, err
}

// iscsiSource returns the volume's source; that of a pod in the form of a persistent volume's.
func iscsiSource(u used) *v1.ISCSIPersistentVolumeSource {
	if u.pv != nil {
		return u.pv.Spec.ISCSI
	}
	in := u.volume.ISCSI
	out := &v1.ISCSIPersistentVolumeSource{TargetPortal: in.TargetPortal, IQN: in.IQN, Lun: in.Lun,
		ISCSIInterface: in.ISCSIInterface, FSType: in.FSType, ReadOnly: in.ReadOnly,
		Portals:           in.Portals,
		DiscoveryCHAPAuth: in.DiscoveryCHAPAuth, SessionCHAPAuth: in.SessionCHAPAuth,
		InitiatorName: in.InitiatorName}
	if in.SecretRef != nil {
		out.SecretRef = &v1.SecretReference{Name: in.SecretRef.Name}
	}
	return out
}

// chapSecret returns the keys of the secret with which the node logs in; nil: there are none.
func (c DisksConfig) chapSecret(ctx context.Context, pod *v1.Pod, source *v1.ISCSIPersistentVolumeSource) (
	map[string]string, error) {
	ref := source.SecretRef
	if ref == nil || ref.Name == "" || !source.DiscoveryCHAPAuth && !source.SessionCHAPAuth {
		return nil, nil
	}
	if c.Secret == nil {
		return nil, fmt.Errorf("there is no API server to get secret %s from; run the agent with "+
			"--kubeconfig", ref.Name)
	}
	namespace := cmp.Or(ref.Namespace, pod.Namespace)
	found, err := c.Secret(ctx, namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s error: %w", namespace, ref.Name, err)
	}
	out := map[string]string{}
	for key, value := range found.Data {
		out[key] = string(value)
	}
	return out, nil
}
