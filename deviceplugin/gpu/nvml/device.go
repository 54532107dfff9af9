//go:build cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/topology"
)

// gpu reads one GPU, without what the driver or the GPU does not support.
func (s *session) gpu(d nvml.Device, index int, warnings *[]string) (gpu.GPU, error) {
	out := gpu.GPU{Index: index, Minor: index, Node: topology.NoNode}
	uuid, ret := d.GetUUID()
	if err := errorOf("read its UUID", ret); err != nil {
		return out, err
	}
	out.UUID = uuid
	if name, ret := d.GetName(); ret == nvml.SUCCESS {
		out.Name = name
	}
	if minor, ret := d.GetMinorNumber(); ret == nvml.SUCCESS {
		out.Minor = minor
	}
	if pci, ret := d.GetPciInfo(); ret == nvml.SUCCESS {
		out.Bus = busOf(pci)
		out.Node, out.Root = s.node(out.Bus), s.root(out.Bus)
		if s.functions[memoryAffinity] {
			out.NodeDoubt = doubt(out.Node, nodesOf(d))
		}
	}
	known := s.seen[uuid]
	if known == nil {
		known = &seen{}
		s.seen[uuid] = known
	}
	if known.traits == nil {
		known.traits = new(s.traits(d))
	}
	out.Traits = *known.traits
	divided, err := s.inMIGMode(d)
	if err != nil {
		return out, err
	}
	if divided {
		out.MIG = true
		if known.places == nil {
			known.places = s.partitions(d, out.Traits.Memory)
		}
		out.Traits.Partitions = known.places
		instances, doubts, err := s.instances(d, out.Minor)
		if err != nil {
			return out, err
		}
		for _, what := range doubts {
			*warnings = append(*warnings, fmt.Sprintf("GPU %d (%s): %s", index, uuid, what))
		}
		out.Instances = instances
	}
	s.hear(d, known)
	out.Reading, err = s.read(d, known)
	return out, err
}

// inMIGMode reports whether the GPU is in MIG mode. A GPU whose mode cannot be read must not be
// offered as a whole.
func (f functions) inMIGMode(d nvml.Device) (bool, error) {
	if !f[migMode] {
		return false, nil
	}
	mode, _, ret := d.GetMigMode()
	if unknown(ret) {
		return false, nil
	}
	return mode == nvml.DEVICE_MIG_ENABLE, errorOf("read its MIG mode", ret)
}

// unknown reports whether the library says that the GPU does not support the question.
func unknown(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND ||
		ret == nvml.ERROR_NO_PERMISSION
}

// hear subscribes to the GPU's events, once.
func (s *session) hear(d nvml.Device, known *seen) {
	if s.events == nil || known.listens {
		return
	}
	types, ret := d.GetSupportedEventTypes()
	if ret == nvml.SUCCESS {
		types &= nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
		ret = d.RegisterEvents(types, s.events)
	}
	// A GPU without events is not asked again; after other failures the next reading tries again.
	known.listens = ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_SUPPORTED
}

// read returns the GPU's health.
func (s *session) read(d nvml.Device, known *seen) (out gpu.Reading, err error) {
	count, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	switch ret {
	case nvml.SUCCESS:
		out.Uncorrected = count
	case nvml.ERROR_GPU_IS_LOST:
		return gpu.Reading{Lost: true}, nil
	default:
		if err := errorOf("read its memory errors", ret); err != nil && !unknown(ret) {
			return out, err
		}
	}
	if s.functions[remappedRows] {
		if _, _, pending, failure, ret := d.GetRemappedRows(); ret == nvml.SUCCESS {
			out.RemapPending, out.RemapFailed = pending, failure
		}
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		if state, ret := d.GetNvLinkState(link); ret == nvml.SUCCESS &&
			state == nvml.FEATURE_ENABLED {
			out.LinksUp++
		}
	}
	known.links = max(known.links, out.LinksUp)
	out.LinksDown = known.links - out.LinksUp
	var action uint32
	if action, out.Advises = s.field(d, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION); out.Advises {
		out.Action = actionOf(action)
	}
	return out, nil
}

// field returns the value of a field that is an unsigned int; false if the driver does not tell.
func (f functions) field(d nvml.Device, id uint32) (uint32, bool) {
	fields := []nvml.FieldValue{{FieldId: id}}
	if !f[fieldValues] || d.GetFieldValues(fields) != nvml.SUCCESS ||
		nvml.Return(fields[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	return binary.NativeEndian.Uint32(fields[0].Value[:4]), true
}

// actions are the recoveries that a driver asks for, by NVML's numbers.
var actions = map[nvml.DeviceGpuRecoveryAction]gpu.Action{
	nvml.GPU_RECOVERY_ACTION_NONE:            gpu.NoAction,
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:       gpu.Reset,
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:     gpu.Reboot,
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:       gpu.DrainP2P,
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: gpu.DrainAndReset,
}

func actionOf(code uint32) gpu.Action {
	if action, known := actions[nvml.DeviceGpuRecoveryAction(code)]; known {
		return action
	}
	return gpu.Action(fmt.Sprintf("recovery action %d", code))
}

// busOf returns the PCI address in the form of sysfs.
func busOf(pci nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}

// node returns the NUMA node of a PCI device from sysfs.
func (s *session) node(bus string) topology.NodeID {
	raw, err := os.ReadFile(filepath.Join("/", s.Root, "sys/bus/pci/devices", bus, "numa_node"))
	if err != nil {
		return topology.NoNode
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || id < 0 {
		return topology.NoNode
	}
	return topology.NodeID(id)
}
