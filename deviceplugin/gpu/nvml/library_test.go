//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	nvmlmock "github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// library is go-nvml's mock, which answers with the state of a rig.
type library struct {
	nvmlmock.Interface
	rig     *mock.Rig
	machine *mock.Machine
	root    string
	events  []nvml.EventData
	waited  nvml.Return    // result of a wait without an event
	near    map[string]int // NUMA nodes of the driver that differ from those of the PCI devices
	lacks   []string       // missing functions
}

func (l *library) open(t *testing.T) gpu.Session {
	t.Helper()
	session, err := Driver{Library: l, Root: l.root}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// newLibrary also lays out the files of sysfs and proc that are read.
func newLibrary(t *testing.T, name string) *library {
	t.Helper()
	m, err := mock.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	l := &library{rig: mock.New(m), machine: m, root: t.TempDir(), waited: nvml.ERROR_TIMEOUT}
	for _, g := range l.read(t).GPUs {
		at := filepath.Join(l.root, "sys/devices", g.Root, g.Bus)
		write(t, filepath.Join(at, "numa_node"), strconv.Itoa(int(g.Node))+"\n")
		link := filepath.Join(l.root, "sys/bus/pci/devices", g.Bus)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, link); err != nil {
			t.Fatal(err)
		}
	}
	l.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &nvmlmock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
			if slices.Contains(l.lacks, name) {
				return errors.New("undefined symbol: " + name)
			}
			return nil
		}}
	}
	l.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	l.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	l.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return m.Driver, nvml.SUCCESS }
	l.SystemGetCudaDriverVersionFunc = func() (int, nvml.Return) {
		var major, minor int
		_, err := fmt.Sscanf(m.CUDA, "%d.%d", &major, &minor)
		if err != nil {
			t.Error(err)
		}
		return major*1000 + minor*10, nvml.SUCCESS
	}
	l.DeviceGetCountFunc = func() (int, nvml.Return) { return len(m.GPUs), nvml.SUCCESS }
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		for at, g := range l.read(t).GPUs {
			if g.Index == i && !g.Reading.Lost {
				return l.device(t, at), nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &nvmlmock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				if len(l.events) == 0 {
					return nvml.EventData{}, l.waited
				}
				event := l.events[0]
				l.events = l.events[1:]
				return event, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	return l
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read returns the rig's snapshot.
func (l *library) read(t *testing.T) gpu.Snapshot {
	t.Helper()
	session, err := l.rig.Open()
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// device returns the GPU at a position of the rig's snapshot.
func (l *library) device(t *testing.T, at int) *nvmlmock.Device {
	s := l.read(t)
	g := s.GPUs[at]
	d := &nvmlmock.Device{
		GetUUIDFunc:        func() (string, nvml.Return) { return g.UUID, nvml.SUCCESS },
		GetNameFunc:        func() (string, nvml.Return) { return g.Name, nvml.SUCCESS },
		GetMinorNumberFunc: func() (int, nvml.Return) { return g.Minor, nvml.SUCCESS },
		GetPciInfoFunc:     func() (nvml.PciInfo, nvml.Return) { return pciOf(t, g.Bus), nvml.SUCCESS },
		GetMigModeFunc: func() (int, int, nvml.Return) {
			mode := 0
			if g.MIG {
				mode = nvml.DEVICE_MIG_ENABLE
			}
			return mode, mode, nvml.SUCCESS
		},
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return g.Reading.Uncorrected, nvml.SUCCESS
		},
		GetRemappedRowsFunc: func() (int, int, bool, bool, nvml.Return) {
			return 0, 0, g.Reading.RemapPending, g.Reading.RemapFailed, nvml.SUCCESS
		},
		GetSupportedEventTypesFunc: func() (uint64, nvml.Return) { return 0xFF, nvml.SUCCESS },
		RegisterEventsFunc:         func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
		GetTopologyCommonAncestorFunc: func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			uuid, _ := other.GetUUID()
			for to, o := range s.GPUs {
				if o.UUID == uuid {
					return levelOf(s.Links[at][to].Path), nvml.SUCCESS
				}
			}
			return 0, nvml.ERROR_INVALID_ARGUMENT
		},
		GetFieldValuesFunc:   l.fields(g),
		GetNvLinkVersionFunc: func(int) (uint32, nvml.Return) { return 4, nvml.SUCCESS },
		GetMemoryAffinityFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
			return []uint{1 << l.nearest(g), 0}, nvml.SUCCESS
		},
	}
	l.addLinks(t, d, s, at)
	l.addTraits(t, d, g)
	l.addInstances(d, g)
	return d
}

// addTraits gives the GPU what does not change, and its profiles.
func (l *library) addTraits(t *testing.T, d *nvmlmock.Device, g gpu.GPU) {
	d.GetBrandFunc = func() (nvml.BrandType, nvml.Return) {
		for number, name := range brands {
			if name == g.Traits.Brand {
				return number, nvml.SUCCESS
			}
		}
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetArchitectureFunc = func() (nvml.DeviceArchitecture, nvml.Return) {
		for number, name := range architectures {
			if name == g.Traits.Architecture {
				return number, nvml.SUCCESS
			}
		}
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetCudaComputeCapabilityFunc = func() (major, minor int, ret nvml.Return) {
		if _, err := fmt.Sscanf(g.Traits.Compute, "%d.%d", &major, &minor); err != nil {
			t.Error(err)
		}
		return major, minor, nvml.SUCCESS
	}
	var profiles []nvml.GpuInstanceProfileInfo
	places := map[uint32][]nvml.GpuInstancePlacement{}
	for _, p := range g.Traits.Partitions {
		if places[uint32(p.ID)] == nil {
			profiles = append(profiles, nvml.GpuInstanceProfileInfo{Id: uint32(p.ID),
				SliceCount: uint32(p.Compute), MemorySizeMB: p.Memory >> 20})
		}
		places[uint32(p.ID)] = append(places[uint32(p.ID)],
			nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)})
	}
	d.GetGpuInstanceProfileInfoFunc = func(i int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		if i >= len(profiles) {
			return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
		}
		return profiles[i], nvml.SUCCESS
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *nvml.GpuInstanceProfileInfo) (
		[]nvml.GpuInstancePlacement, nvml.Return) {
		return places[info.Id], nvml.SUCCESS
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for _, one := range g.Instances {
			if one.GPU == id {
				return &nvmlmock.GpuInstance{GetInfoFunc: func() (nvml.GpuInstanceInfo, nvml.Return) {
					return nvml.GpuInstanceInfo{Placement: nvml.GpuInstancePlacement{
						Start: uint32(one.Start)}}, nvml.SUCCESS
				}}, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
}

func (l *library) nearest(g gpu.GPU) int {
	if node, told := l.near[g.UUID]; told {
		return node
	}
	return int(g.Node)
}

func pciOf(t *testing.T, bus string) nvml.PciInfo {
	t.Helper()
	number := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	return nvml.PciInfo{Domain: number(bus[:4]), Bus: number(bus[5:7]), Device: number(bus[8:10])}
}

func levelOf(p prefer.Path) nvml.GpuTopologyLevel {
	return []nvml.GpuTopologyLevel{nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE,
		nvml.TOPOLOGY_MULTIPLE, nvml.TOPOLOGY_HOSTBRIDGE, nvml.TOPOLOGY_NODE,
		nvml.TOPOLOGY_SYSTEM}[p]
}

func (l *library) fields(g gpu.GPU) func([]nvml.FieldValue) nvml.Return {
	return func(fields []nvml.FieldValue) nvml.Return {
		switch fields[0].FieldId {
		case nvml.FI_DEV_GET_GPU_RECOVERY_ACTION:
			fields[0].Value[0] = map[gpu.Action]byte{gpu.NoAction: 0, gpu.Reset: 1,
				gpu.Reboot: 2}[g.Reading.Action]
		case nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON:
			speed := l.machine.NVLink.GBps * 1000
			fields[0].Value[0], fields[0].Value[1] = byte(speed), byte(speed>>8)
		default:
			return nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.SUCCESS
	}
}

// addLinks gives the GPU its NVLinks; the first ones are down.
func (l *library) addLinks(t *testing.T, d *nvmlmock.Device, s gpu.Snapshot, at int) {
	reading := s.GPUs[at].Reading
	total := reading.LinksUp + reading.LinksDown
	var remote []nvml.PciInfo
	if l.machine.NVLink.Pairs != nil {
		for to, link := range s.Links[at] {
			for range link.NVLink / l.machine.NVLink.GBps {
				remote = append(remote, pciOf(t, s.GPUs[to].Bus))
			}
		}
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= total {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		if link < reading.LinksDown {
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
		if remote == nil {
			return nvml.PciInfo{Bus: 0xf0}, nvml.SUCCESS
		}
		return remote[link], nvml.SUCCESS
	}
	d.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		if remote == nil {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
}

// addInstances gives the GPU its MIG devices; every second place is unused.
func (l *library) addInstances(d *nvmlmock.Device, g gpu.GPU) {
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 14, nvml.SUCCESS }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: g.Traits.Memory}, nvml.SUCCESS
	}
	d.GetMigDeviceHandleByIndexFunc = func(place int) (nvml.Device, nvml.Return) {
		if place%2 == 1 || place/2 >= len(g.Instances) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		one := g.Instances[place/2]
		slices, _ := strconv.Atoi(one.Profile[:1])
		return &nvmlmock.Device{
			GetUUIDFunc:              func() (string, nvml.Return) { return one.UUID, nvml.SUCCESS },
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return one.GPU, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return one.Compute, nvml.SUCCESS },
			GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
				return nvml.DeviceAttributes{GpuInstanceSliceCount: uint32(slices),
					ComputeInstanceSliceCount: uint32(slices),
					MemorySizeMB:              uint64(slices) * 9728}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
}
