package memory

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Requests returns the bytes of memory and huge pages that the policy places for the container: its
// limits, if the pod is Guaranteed; nil otherwise. It expects a defaulted pod, the rules that hold for it
// and any of its containers.
func Requests(pod *v1.Pod, c *v1.Container, rules topology.Rules) map[v1.ResourceName]uint64 {
	return RequestsOf(pod, rules)(c)
}

// RequestsOf is Requests for all containers of the pod, whose class is computed once.
func RequestsOf(pod *v1.Pod, rules topology.Rules) func(*v1.Container) map[v1.ResourceName]uint64 {
	if podspec.OwnOf(pod, rules) == podspec.OwnNothing {
		return func(*v1.Container) map[v1.ResourceName]uint64 { return nil }
	}
	return func(c *v1.Container) map[v1.ResourceName]uint64 {
		if !podspec.QualifiesAlone(pod, c) {
			return nil
		}
		return bytesOf(c.Resources.Limits)
	}
}

// bytesOf returns the memory and huge pages of the list.
func bytesOf(list v1.ResourceList) map[v1.ResourceName]uint64 {
	out := map[v1.ResourceName]uint64{}
	for name, q := range list {
		if isMemory(name) && q.Sign() > 0 {
			out[name] = uint64(q.Value())
		}
	}
	return out
}

// PodRequests returns the most bytes that the pod needs at any time; nil if none. A pod with a pool needs
// what it requests as a whole and, of huge pages that it does not name there, what its containers do.
func PodRequests(pod *v1.Pod, rules topology.Rules) map[v1.ResourceName]uint64 {
	peaks := podspec.Peaks(pod, RequestsOf(pod, rules))
	if podspec.OwnOf(pod, rules) == podspec.OwnPool {
		maps.Copy(peaks, bytesOf(pod.Spec.Resources.Requests))
	}
	if len(peaks) == 0 {
		return nil
	}
	return peaks
}

// SharesWithinPod reports whether a container that has memory shares it with other containers of its pod.
func SharesWithinPod(pod *v1.Pod, c *v1.Container) bool { return !podspec.QualifiesAlone(pod, c) }

func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Reserved returns reservedMemory of the configuration in bytes.
func Reserved(list []kubeletconfig.MemoryReservation) Amounts {
	out := Amounts{}
	for _, r := range list {
		id := topology.NodeID(r.NumaNode)
		if out[id] == nil {
			out[id] = map[v1.ResourceName]uint64{}
		}
		for name, q := range r.Limits {
			out[id][name] += uint64(max(0, q.Value()))
		}
	}
	return out
}

// CheckReserved checks that reservedMemory adds up to what the whole node withholds from pods:
// kubeReserved, systemReserved and the hard eviction threshold together. Memory may differ by slack
// bytes, because a threshold in percent depends on the machine's total. The text is the kubelet's.
func CheckReserved(list []kubeletconfig.MemoryReservation, kept v1.ResourceList,
	slack int64) error {
	sums := map[v1.ResourceName]resource.Quantity{}
	for _, r := range list {
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	for name := range kept {
		if _, ok := sums[name]; !ok && isMemory(name) {
			sums[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	for _, name := range sortedKeys(sums) {
		sum, want := sums[name], kept[name]
		off := sum.DeepCopy()
		off.Sub(want)
		if name == v1.ResourceMemory && max(off.Value(), -off.Value()) <= slack {
			continue
		}
		if !off.IsZero() {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q "+
				"determined by Node Allocatable feature", sum.String(), name, want.String())
		}
	}
	return nil
}
