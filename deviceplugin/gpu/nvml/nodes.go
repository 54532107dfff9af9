//go:build cgo

package nvml

import (
	"fmt"
	"math/bits"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/topology"
)

// maxNodes is the largest number of NUMA nodes in Linux.
const maxNodes = 1024

// nodesOf returns the NUMA nodes whose memory the driver calls near to the GPU; empty if it does
// not say. GetNumaNodeId would return the node of the GPU's own memory.
func nodesOf(d nvml.Device) topology.NodeSet {
	words, ret := d.GetMemoryAffinity(maxNodes/8, nvml.AFFINITY_SCOPE_NODE)
	if ret != nvml.SUCCESS {
		return topology.NodeSet{}
	}
	var nodes []topology.NodeID
	for at, word := range words {
		for ; word != 0; word &= word - 1 {
			nodes = append(nodes, topology.NodeID(at*bits.UintSize+bits.TrailingZeros(word)))
		}
	}
	return topology.NewNodeSet(nodes...)
}

// doubt says that the driver does not name the node of the PCI device. The PCI device's node
// counts: the kernel, the kubelet and other plugins go by it.
func doubt(pci topology.NodeID, driver topology.NodeSet) string {
	if pci == topology.NoNode || driver.Len() == 0 || driver.Has(pci) {
		return ""
	}
	return fmt.Sprintf("its PCI device is on NUMA node %d, NVML says %s; node %d is used: see the "+
		"firmware's settings, or numa_node of the device in sysfs", pci, driver, pci)
}
