package localstorage

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// The limits that a pod may exceed, as the kubelet's metric of evictions names them.
const (
	SignalEmptyDir  = "emptydirfs.limit"
	SignalPod       = "ephemeralpodfs.limit"
	SignalContainer = "ephemeralcontainerfs.limit"
)

// Excess is a limit that a pod exceeds.
type Excess struct {
	Signal  string
	Message string // the kubelet's
}

// limits hold the amounts of local storage that a pod may use.
type limits struct {
	volumes    map[string]resource.Quantity // of emptyDirs
	pod        *resource.Quantity           // nil: none
	containers map[string]resource.Quantity
}

// limitsOf returns the limits of local storage of a pod. An emptyDir or a container with a limit of
// zero has none; init containers but sidecars have none of their own, as for the kubelet. memory: those in
// memory have theirs from the kernel alone.
func limitsOf(pod *v1.Pod, memory bool) limits {
	l := limits{volumes: map[string]resource.Quantity{}, containers: map[string]resource.Quantity{}}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || memory && v.EmptyDir.Medium == v1.StorageMediumMemory {
			continue
		}
		if v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
			l.volumes[v.Name] = *v.EmptyDir.SizeLimit
		}
	}
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Regular && kind != podspec.Sidecar {
			continue
		}
		if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() {
			l.containers[c.Name] = *limit
		}
	}
	all := helpers.PodLimits(pod, helpers.PodResourcesOptions{})
	if limit, has := all[v1.ResourceEphemeralStorage]; has {
		l.pod = &limit
	}
	return l
}

func (l limits) none() bool { return len(l.volumes)+len(l.containers) == 0 && l.pod == nil }

// Exceeded returns the first limit that a pod exceeds by what was measured: of an emptyDir, then
// the pod's, then a container's. apart says that images are on a filesystem of their own, and
// writable layers with them: those count for the pod, and not for its containers. memory is as for limitsOf.
func Exceeded(pod *v1.Pod, used *statsapi.PodStats, apart, memory bool) (Excess, bool) {
	l := limitsOf(pod, memory)
	volumes := map[string]*uint64{}
	for i := range used.VolumeStats {
		volumes[used.VolumeStats[i].Name] = used.VolumeStats[i].UsedBytes
	}
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if limit, has := l.volumes[name]; has && over(limit, bytes(volumes[name])) {
			return Excess{SignalEmptyDir, fmt.Sprintf(
				"Usage of EmptyDir volume %q exceeds the limit %q. ", name, limit.String())}, true
		}
	}
	if l.pod != nil && over(*l.pod, usedOn(used.EphemeralStorage)) {
		return Excess{SignalPod, fmt.Sprintf(
			"Pod ephemeral local storage usage exceeds the total limit of containers %s. ", l.pod)}, true
	}
	for i := range used.Containers {
		c := &used.Containers[i]
		sum := usedOn(c.Logs)
		if !apart {
			sum += usedOn(c.Rootfs)
		}
		if limit, has := l.containers[c.Name]; has && over(limit, sum) {
			return Excess{SignalContainer, fmt.Sprintf(
				"Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())}, true
		}
	}
	return Excess{}, false
}

func over(limit resource.Quantity, used int64) bool {
	return limit.Cmp(*resource.NewQuantity(used, resource.BinarySI)) < 0
}

func usedOn(fs *statsapi.FsStats) int64 {
	if fs == nil {
		return 0
	}
	return bytes(fs.UsedBytes)
}

func bytes(n *uint64) int64 { return int64(ptr.Deref(n, 0)) }
