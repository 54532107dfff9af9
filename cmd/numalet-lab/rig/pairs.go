package rig

import (
	"strings"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// pairsOf counts the pairs that a container's devices of any two resources make, and those of them
// that share a PCIe switch.
func pairsOf(m *topology.Machine, c allocation.Container) (all, near int) {
	var before []map[string]int // devices by switch, for each resource
	for _, set := range devicesOf(c) {
		now, known := map[string]int{}, 0
		for _, id := range set.IDs {
			if pci, here := (devicemanager.Resource{}).PCI(m, id); here && pci.Path != "" {
				now[switchOf(pci)]++
				known++
			}
		}
		for _, other := range before {
			n := 0
			for at, devices := range other {
				n += devices
				if at != "" {
					near += min(devices, now[at])
				}
			}
			all += min(n, known)
		}
		before = append(before, now)
	}
	return all, near
}

// switchOf names the way to a device down to the switch below its root port; "": there is none.
func switchOf(d topology.PCIDevice) string {
	way := strings.SplitN(d.Path, "/", 4)
	if len(way) < 3 {
		return ""
	}
	return strings.Join(way[:3], "/")
}
