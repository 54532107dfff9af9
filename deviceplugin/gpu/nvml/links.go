//go:build cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// ends counts the working NVLinks of a GPU by where they go: to switches, and to each GPU by its
// PCI address.
type ends struct {
	switches int
	gpus     map[string]int
	gbps     int
}

// linksOf returns the links between the GPUs.
func (f functions) linksOf(handles []nvml.Device, gpus []gpu.GPU) prefer.Links {
	all := make([]ends, len(handles))
	for i, d := range handles {
		all[i] = f.endsOf(d)
	}
	out := make(prefer.Links, len(handles))
	for i := range out {
		out[i] = make([]prefer.Link, len(handles))
		for j := range out[i] {
			if i == j {
				continue
			}
			direct := all[i].gpus[gpus[j].Bus]
			through := min(all[i].switches, all[j].switches)
			out[i][j] = prefer.Link{Path: pathOf(handles[i], handles[j]),
				NVLink: (direct + through) * min(all[i].gbps, all[j].gbps)}
		}
	}
	return out
}

func (f functions) endsOf(d nvml.Device) ends {
	out := ends{gpus: map[string]int{}}
	if !f[remoteType] {
		return out
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		remote, ret := d.GetNvLinkRemotePciInfo(link)
		if ret != nvml.SUCCESS {
			continue
		}
		switch kind, ret := d.GetNvLinkRemoteDeviceType(link); {
		case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
			out.switches++
		case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_GPU:
			out.gpus[busOf(remote)]++
		default:
			continue
		}
		if out.gbps == 0 {
			out.gbps = f.speedOf(d, link)
		}
	}
	return out
}

// speedOf returns the bandwidth of one NVLink in GB/s, one way.
func (f functions) speedOf(d nvml.Device, link int) int {
	if speed, _ := f.field(d, nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON); speed > 0 {
		return int(speed / 1000)
	}
	version, ret := d.GetNvLinkVersion(link)
	switch {
	case ret != nvml.SUCCESS || version == 1:
		return 20
	case version >= 5:
		return 50
	}
	return 25
}

// paths are the PCIe paths by NVML's words for the closest thing that two GPUs have in common.
var paths = map[nvml.GpuTopologyLevel]prefer.Path{
	nvml.TOPOLOGY_INTERNAL:   prefer.Board,
	nvml.TOPOLOGY_SINGLE:     prefer.Switch,
	nvml.TOPOLOGY_MULTIPLE:   prefer.Switches,
	nvml.TOPOLOGY_HOSTBRIDGE: prefer.Bridge,
	nvml.TOPOLOGY_NODE:       prefer.Node,
}

// pathOf returns the PCIe path; the longest if the driver does not say.
func pathOf(a, b nvml.Device) prefer.Path {
	level, ret := a.GetTopologyCommonAncestor(b)
	if path, known := paths[level]; known && ret == nvml.SUCCESS {
		return path
	}
	return prefer.System
}
