// Package nodestatus computes a node's capacity and status, and whether a pod fits. It is pure.
package nodestatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology"
)

// Reservation says what is kept from pods, and how many pods there may be.
type Reservation struct {
	// Reserved is kubeReserved plus systemReserved.
	Reserved v1.ResourceList
	// Eviction is the sum of the hard eviction thresholds.
	Eviction v1.ResourceList
	// MaxPods is maxPods, or podsPerCore times cores when that is less.
	MaxPods int64
}

// Kept returns everything that pods do not get.
func (r Reservation) Kept() v1.ResourceList {
	return total(r.Reserved, r.Eviction)
}

func total(lists ...v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, list := range lists {
		for name, q := range list {
			sum := out[name]
			sum.Add(q)
			out[name] = sum
		}
	}
	return out
}

// Capacity returns what the machine has: cpu, memory, hugepages-* and pods.
func Capacity(m *topology.Machine, maxPods int64) v1.ResourceList {
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(m.Online().Size()), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(m.MemoryBytes()), resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	for _, n := range m.Nodes() {
		for _, h := range n.HugePages {
			size := resource.NewQuantity(int64(h.PageBytes), resource.BinarySI)
			name := v1.ResourceName(v1.ResourceHugePagesPrefix + size.String())
			total := out[name]
			total.Add(*resource.NewQuantity(int64(h.PageBytes*h.Count), resource.BinarySI))
			out[name] = total
		}
	}
	return out
}

// Allocatable returns what pods may request of a machine.
func Allocatable(m *topology.Machine, r Reservation) v1.ResourceList {
	return r.Of(Capacity(m, r.MaxPods))
}

// Of returns what the reservation leaves of a capacity, never below zero. Huge pages are subtracted
// from memory too.
func (r Reservation) Of(capacity v1.ResourceList) v1.ResourceList {
	out := maps.Clone(capacity)
	memory := out[v1.ResourceMemory]
	for name, q := range out {
		if isHugePages(name) {
			memory.Sub(q)
		}
	}
	out[v1.ResourceMemory] = memory
	for name, q := range out {
		for _, held := range []v1.ResourceList{r.Reserved, r.Eviction} {
			q.Sub(held[name])
		}
		if q.Sign() < 0 {
			q = resource.Quantity{Format: q.Format}
		}
		out[name] = q
	}
	return out
}

// Shortage describes a resource that a pod requests and the node lacks. Amounts are in the units of
// the kubelet's message: millicores for cpu, bytes, counts.
type Shortage struct {
	Resource                  v1.ResourceName
	Requested, Used, Capacity int64
}

// Reason returns the kubelet's reason of the rejection, "OutOfcpu".
func (s Shortage) Reason() string { return "OutOf" + string(s.Resource) }

// Message returns the kubelet's message.
func (s Shortage) Message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, "+
		"capacity: %d", s.Resource, s.Requested, s.Used, s.Capacity)
}

// Missing returns how much more the node would need.
func (s Shortage) Missing() int64 { return s.Requested + s.Used - s.Capacity }

// Fits compares the pod's requests with what the other pods leave, and lists the shortages: pods,
// cpu and memory first, then the others by name.
func Fits(requests v1.ResourceList, others []v1.ResourceList,
	allocatable v1.ResourceList) []Shortage {
	used := total(others...)
	var short []Shortage
	for name, want := range requests {
		if want.IsZero() {
			continue
		}
		have, inUse := allocatable[name], used[name]
		after := inUse.DeepCopy()
		after.Add(want)
		if after.Cmp(have) > 0 {
			short = append(short, Shortage{name, Amount(name, want), Amount(name, inUse),
				Amount(name, have)})
		}
	}
	slices.SortFunc(short, func(a, b Shortage) int {
		return cmp.Or(rank(a.Resource)-rank(b.Resource), cmp.Compare(a.Resource, b.Resource))
	})
	return short
}

func Amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func rank(name v1.ResourceName) int {
	i := slices.Index([]v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory}, name)
	if i < 0 {
		return 3
	}
	return i
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
