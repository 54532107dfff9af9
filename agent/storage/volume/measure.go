package volume

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/diskusage"
)

// Measured counts volumes, and has the space of those that others serve.
type Measured struct {
	// Desired counts the volumes that the pods use, and Actual those that are set up, by their
	// type's name.
	Desired, Actual map[string]int
	Rooms           []VolumeRoom // in the order of the pods, each volume once
}

// VolumeRoom is the space on a volume that is not a part of the node's disk.
type VolumeRoom struct {
	// Namespace and PVC name the PVC; PVC is "" for a volume that a pod's spec has.
	Namespace, PVC string
	Room           diskusage.Room
	At             time.Time   // when it was so
	Pods           []PodVolume // the pods with the volume, in their order
}

// PodVolume is a volume of a pod, by its name in the pod.
type PodVolume struct {
	Pod    types.UID
	Volume string
}

// PodRoom is a volume of a pod that is not a part of the node's disk, with its room at some time.
type PodRoom struct {
	Volume string // its name in the pod
	// Namespace and Claim name the claim that it comes from; Claim is "" if there is none.
	Namespace, Claim string
	Room             diskusage.Room
	At               time.Time
}

// ByPod returns the rooms of each pod's volumes.
func (m Measured) ByPod() map[types.UID][]PodRoom {
	out := map[types.UID][]PodRoom{}
	for _, one := range m.Rooms {
		for _, of := range one.Pods {
			out[of.Pod] = append(out[of.Pod], PodRoom{of.Volume, one.Namespace, one.PVC, one.Room, one.At})
		}
	}
	return out
}

// Meter measures volumes, and has what was measured last.
type Meter struct {
	*node
	due     *due // with the pods whose drivers may be asked for the health of their volumes
	rooms   rooms
	healths answers[[]v1.VolumeHealthCondition]
}

// Measure counts the volumes of the pods and measures those that others serve, each once. A volume
// whose file system or driver does not answer keeps what was measured last, for some time. Measure
// calls looked for each answer with the method and the time taken, maybe after it has returned.
func (m *Meter) Measure(ctx context.Context, pods []*v1.Pod,
	looked func(by string, took time.Duration)) Measured {
	out := Measured{Desired: map[string]int{}, Actual: map[string]int{}}
	var looks []reading[diskusage.Room]
	seen := map[string]int{} // index in Rooms
	for u := range m.inUse(pods) {
		out.Desired[u.fullName()]++
		if !u.isThere() {
			continue
		}
		out.Actual[u.fullName()]++
		if !u.isMeasured() {
			continue
		}
		one := m.lookAt(u)
		at, known := seen[one.key]
		if !known {
			at = len(out.Rooms)
			seen[one.key], looks = at, append(looks, one)
			out.Rooms = append(out.Rooms, VolumeRoom{Namespace: u.pod.Namespace, PVC: u.pvc})
		}
		out.Rooms[at].Pods = append(out.Rooms[at].Pods, PodVolume{u.pod.UID, u.volume.Name})
	}
	m.rooms.look(ctx, m.calls, looks, looked)
	kept := out.Rooms[:0]
	for i, one := range looks {
		if a, is := m.rooms.of(one.key); is {
			out.Rooms[i].Room, out.Rooms[i].At = a.value, a.at
			kept = append(kept, out.Rooms[i])
		}
	}
	out.Rooms = slices.Clip(kept)
	return out
}

// isMeasured reports whether the volume has room of its own: a driver's, a server's, or a device's, and no
// directory of the host. What is in volumes of the node itself (OwnOf), agent/storage/localstorage measures.
func (u used) isMeasured() bool {
	switch {
	case u.plugin.driver != nil, u.plugin.block:
		return true
	case u.plugin.path != nil:
		return false
	case u.pvc != "":
		return true
	default:
		is := u.facts()
		return is.mounted && is.served
	}
}

// lookAt says how to measure a volume of a pod, which is the same volume for all pods with its PVC.
func (m *Meter) lookAt(u inUse) reading[diskusage.Room] {
	out := reading[diskusage.Room]{key: "pod " + string(u.pod.UID) + "/" + u.volume.Name, by: "statfs"}
	if u.pvc != "" {
		out.key = "pv " + u.pv.Name
	}
	path := u.path(u.podDir)
	switch {
	case u.plugin.driver != nil:
		out.by = u.facts().driver
		out.measure = func() (diskusage.Room, error) { return u.plugin.driver.room(m.cfg, u.pod, u.used) }
	case u.plugin.block:
		out.by = "block"
		out.measure = func() (diskusage.Room, error) { return diskusage.Device(path) }
	default:
		out.measure = func() (diskusage.Room, error) { return diskusage.Filesystem(path) }
	}
	return out
}
