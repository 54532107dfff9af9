package claim

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology"
)

// CPUDriver is the name of the agent's own driver of CPUs: that of dra-driver-cpu, whose classes and
// claims work with it.
const CPUDriver = "dra.cpu"

// cpuDevicePrefix begins the names of its devices, which are the CPUs of a NUMA node each.
const cpuDevicePrefix = "cpudevnuma"

// CPUDevice names the device of a node.
func CPUDevice(node topology.NodeID) string { return fmt.Sprintf("%s%03d", cpuDevicePrefix, node) }

// NodeOfCPUDevice returns the node that CPUDevice named.
func NodeOfCPUDevice(name string) (nodes topology.NodeSet) {
	number, is := strings.CutPrefix(name, cpuDevicePrefix)
	id, err := strconv.ParseUint(number, 10, 16)
	if !is || err != nil {
		return nodes
	}
	return topology.NewNodeSet(topology.NodeID(id))
}

// Amount counts the CPUs and the memory of a device, or of a claim's share of it. The node hands out
// both itself, too.
type Amount struct {
	CPUs int64 `json:"cpus,omitempty"`
	// Bytes are bytes of memory, Pages huge pages.
	Bytes int64 `json:"bytes,omitempty"`
	Pages int64 `json:"pages,omitempty"`
}

// AmountOf returns what is known of a driver's capacities; each returns one by its name.
func AmountOf[Q any](driver string, all map[resourcev1.QualifiedName]Q,
	each func(Q) resource.Quantity) (a Amount) {
	for name, q := range all {
		full := string(name)
		if !strings.Contains(full, "/") { // the driver is its domain
			full = driver + "/" + full
		}
		quantity := each(q)
		switch n := max(quantity.Value(), 0); full {
		case "dra.cpu/cpu": // github.com/kubernetes-sigs/dra-driver-cpu, docs/user/device-attributes.md
			a.CPUs += n
		case "dra.memory/memory": // github.com/kad/dra-driver-memory
			a.Bytes += n
		case "dra.memory/pages":
			a.Pages += n
		}
	}
	return a
}

// amount returns the claim's share of the device.
func (d Device) amount() Amount {
	if d.Consumed != (Amount{}) {
		return d.Consumed
	}
	return d.Place.Has
}

// CPUs returns how many CPUs the claim has by the device; 0: it is none for CPUs. Administrative
// access gives none.
func (d Device) CPUs() int {
	if n := int(d.amount().CPUs); n > 0 && !d.Admin {
		return n
	}
	return 0
}

// Memory returns how many bytes of which resource the claim has by the device; 0: it is none for
// memory.
func (d Device) Memory() (of v1.ResourceName, bytes uint64) {
	switch a := d.amount(); {
	case d.Admin:
	case a.Pages > 0 && d.Place.PageBytes > 0:
		size := resource.NewQuantity(d.Place.PageBytes, resource.BinarySI)
		return v1.ResourceName(v1.ResourceHugePagesPrefix + size.String()),
			uint64(a.Pages) * uint64(d.Place.PageBytes)
	case a.Bytes > 0:
		return v1.ResourceMemory, uint64(a.Bytes)
	}
	return "", 0
}
