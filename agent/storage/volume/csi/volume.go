package csi

import (
	"crypto/sha256"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Key names a volume as its driver does.
type Key struct{ Driver, Handle string }

// Name is the volume's unique name in the status of nodes.
func (k Key) Name() string { return pluginName + "/" + k.Driver + "^" + k.Handle }

// Volume holds what the API says of a volume.
type Volume struct {
	Key
	// Name is the persistent volume's, or that of an ephemeral volume in its pod, and Path the same as
	// an element of paths.
	Name, Path string
	FSType     string
	Attributes map[string]string
	// Options are mount options.
	Options []string
	// Label is the SELinux label that it is mounted with; "": none.
	Label   string
	Modes   []v1.PersistentVolumeAccessMode
	Secrets Secrets
	Kind
}

// Kind says how a volume is made.
type Kind struct {
	ReadOnly bool
	// Ephemeral: the pod's spec has it, and it ends with the pod.
	Ephemeral bool
	// Block: containers have it as a device.
	Block bool
	// Migrated: the API has it as a volume of an in-tree type.
	Migrated bool
}

// Secrets go with calls; each may be nil.
type Secrets struct{ Stage, Publish, Expand *v1.SecretReference }

// Persistent returns the volume that a persistent volume is. readOnly is what the claim's reference
// in the pod says.
func Persistent(pv *v1.PersistentVolume, readOnly bool) (Volume, error) {
	source := pv.Spec.CSI
	v := Volume{
		Key: Key{source.Driver, source.VolumeHandle}, Name: pv.Name, Path: pathOf(pv.Name),
		FSType:     source.FSType,
		Attributes: source.VolumeAttributes, Options: pv.Spec.MountOptions,
		Modes: pv.Spec.AccessModes,
		Secrets: Secrets{source.NodeStageSecretRef, source.NodePublishSecretRef,
			source.NodeExpandSecretRef},
		Kind: Kind{
			ReadOnly: readOnly,
			Block: ptr.Deref(pv.Spec.VolumeMode, v1.PersistentVolumeFilesystem) ==
				v1.PersistentVolumeBlock,
		},
	}
	return v, v.check()
}

// Ephemeral returns a volume that the pod's spec has. Its handle is made of the pod's UID, as the
// kubelet makes it.
func Ephemeral(pod *v1.Pod, volume v1.Volume) (Volume, error) {
	source := volume.CSI
	v := Volume{
		Key: Key{source.Driver, ephemeralHandle(pod.UID, volume.Name)}, Name: volume.Name,
		Path: volume.Name, FSType: ptr.Deref(source.FSType, ""), Attributes: source.VolumeAttributes,
		Kind: Kind{ReadOnly: ptr.Deref(source.ReadOnly, false), Ephemeral: true},
	}
	if ref := source.NodePublishSecretRef; ref != nil {
		v.Secrets.Publish = &v1.SecretReference{Namespace: pod.Namespace, Name: ref.Name}
	}
	return v, v.check()
}

// ephemeralHandle is the handle of a volume that a pod's spec has.
func ephemeralHandle(pod types.UID, name string) string { return "csi-" + hash(string(pod)+name) }

// check refuses what cannot be part of a path or of a call.
func (v Volume) check() error {
	if err := checkName(v.Driver); err != nil {
		return err
	}
	if v.Handle == "" {
		return fmt.Errorf("volume %s of CSI driver %s has no volumeHandle", v.Name, v.Driver)
	}
	if v.Path == "" || v.Path == "." || v.Path == ".." || strings.ContainsAny(v.Path, "/\x00") {
		return fmt.Errorf("volume name %q cannot be part of a path", v.Name)
	}
	return nil
}

// mode is the access mode that calls are made with.
func (v Volume) mode() v1.PersistentVolumeAccessMode {
	if len(v.Modes) == 0 {
		return v1.ReadWriteOnce
	}
	return v.Modes[0]
}

// life is the mode of the volume's life in the API's words.
func (v Volume) life() string {
	if v.Ephemeral {
		return ephemeralLife
	}
	return "Persistent"
}

// ephemeralLife is the mode of volumes that end with their pods.
const ephemeralLife = "Ephemeral"

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// AttachmentName is the name of the VolumeAttachment of a volume on a node.
func (k Key) AttachmentName(node string) string { return "csi-" + hash(k.Handle+k.Driver+node) }
