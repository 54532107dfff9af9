//go:build cgo

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	nvmlmock "github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// library is go-nvml's mock of what a rig would say.
type library struct {
	nvmlmock.Interface
	rig     *mock.Rig
	machine *mock.Machine
	root    string
	events  []nvml.EventData
	waited  nvml.Return // what waiting for events returns without one
}

// newLibrary also lays out sysfs and proc as far as they are read.
func newLibrary(t *testing.T, name string) *library {
	t.Helper()
	m, err := mock.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	l := &library{rig: mock.New(m), machine: m, root: t.TempDir(), waited: nvml.ERROR_TIMEOUT}
	for _, g := range l.read(t).GPUs {
		write(t, filepath.Join(l.root, "sys/bus/pci/devices", g.Bus, "numa_node"),
			strconv.Itoa(int(g.Node))+"\n")
	}
	l.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	l.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	l.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return m.Driver, nvml.SUCCESS }
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

// read is what the rig says.
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

// device is the GPU at a position of the rig's snapshot.
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
		GetFieldValuesFunc: l.fields(g),
	}
	l.addLinks(t, d, s, at)
	l.addInstances(d, g)
	return d
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

// addLinks gives the GPU its NVLinks, the first ones of which are down.
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

// addInstances gives the GPU its MIG devices, each second place of which is not used.
func (l *library) addInstances(d *nvmlmock.Device, g gpu.GPU) {
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 14, nvml.SUCCESS }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 80 << 30}, nvml.SUCCESS
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

// Through the library a machine is what it is without: GPUs, links, health.
func TestRead(t *testing.T) {
	for _, name := range mock.Names() {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, name)
			session, err := Driver{Library: l, Root: l.root}.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			compare(t, l, session)
			for _, order := range []string{"ecc 0 2", "remap 1 pending", "remap 2 failed",
				"action 3 reboot"} {
				if err := l.rig.Do(order); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, l, session)
		})
	}
}

func compare(t *testing.T, l *library, session gpu.Session) {
	t.Helper()
	got, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := l.read(t)
	want.StandIn = ""
	for i := range want.GPUs {
		if !reflect.DeepEqual(got.GPUs[i], want.GPUs[i]) {
			t.Errorf("GPU %d:\n%+v, want\n%+v", i, got.GPUs[i], want.GPUs[i])
		}
		if !reflect.DeepEqual(got.Links[i], want.Links[i]) {
			t.Errorf("links of GPU %d:\n%+v, want\n%+v", i, got.Links[i], want.Links[i])
		}
	}
	if got.Driver != want.Driver || len(got.GPUs) != len(want.GPUs) {
		t.Errorf("driver %s with %d GPUs", got.Driver, len(got.GPUs))
	}
}

// NVLinks that were up and are not any more are down; a lost GPU is not there.
func TestReadAfterFaults(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	session, err := Driver{Library: l, Root: l.root}.Open()
	if err != nil {
		t.Fatal(err)
	}
	compare(t, l, session)
	if err := l.rig.Do("links 2 3"); err != nil {
		t.Fatal(err)
	}
	compare(t, l, session)
	if err := l.rig.Do("lose 5"); err != nil {
		t.Fatal(err)
	}
	got, err := session.Read()
	if err != nil || len(got.GPUs) != 7 || got.GPUs[5].Index != 6 || len(got.Links) != 7 {
		t.Errorf("with a lost GPU there are %d: %v", len(got.GPUs), err)
	}
}

// MIG devices have the names of their profiles, and the device nodes that give access.
func TestReadMIG(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	for _, order := range []string{"mig 1 on", "divide 1 1g.10gb=3 2g.20gb=1"} {
		if err := l.rig.Do(order); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(l.root, "proc/driver/nvidia-caps/mig-minors"),
		"config 1\nmonitor 2\ngpu1/gi1/access 138\ngpu1/gi1/ci0/access 139\n")
	session, err := Driver{Library: l, Root: l.root}.Open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := l.read(t).GPUs[1].Instances
	want[1].Nodes, want[2].Nodes, want[3].Nodes = nil, nil, nil // not in the file
	if !reflect.DeepEqual(got.GPUs[1].Instances, want) || !got.GPUs[1].MIG {
		t.Errorf("%+v, want\n%+v", got.GPUs[1].Instances, want)
	}
}

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		gpu, compute uint32
		megabytes    uint64
		media        uint32
		want         string
	}{
		{1, 1, 4864, 0, "1g.5gb"}, {1, 1, 9856, 0, "1g.10gb"}, {1, 1, 4864, 1, "1g.5gb+me"},
		{3, 1, 19968, 0, "1c.3g.20gb"}, {7, 7, 40192, 1, "7g.40gb"},
	} {
		got := profileOf(nvml.DeviceAttributes{GpuInstanceSliceCount: c.gpu,
			ComputeInstanceSliceCount: c.compute, MemorySizeMB: c.megabytes,
			SharedOfaCount: c.media, SharedJpegCount: c.media}, 40<<30)
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Events name the GPU and the instance; one without comes to an end.
func TestWait(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	l.events = []nvml.EventData{
		{Device: l.device(t, 3), EventType: nvml.EventTypeXidCriticalError, EventData: 79,
			GpuInstanceId: noInstance, ComputeInstanceId: noInstance},
		{Device: l.device(t, 4), EventType: nvml.EventTypeDoubleBitEccError, EventData: 7,
			GpuInstanceId: 2, ComputeInstanceId: 0},
	}
	session, err := Driver{Library: l, Root: l.root}.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []gpu.Event{
		{GPU: mock.UUID(3), Instance: -1, Compute: -1, Kind: gpu.XIDEvent, XID: 79},
		{GPU: mock.UUID(4), Instance: 2, Compute: 0, Kind: gpu.DoubleBitEvent},
	} {
		got, found, err := session.Wait(t.Context(), time.Hour)
		if !found || err != nil || got != want {
			t.Errorf("%+v, %t, %v; want %+v", got, found, err, want)
		}
	}
	if _, found, err := session.Wait(t.Context(), time.Millisecond); found || err != nil {
		t.Errorf("without an event: %t, %v", found, err)
	}
	l.waited = nvml.ERROR_GPU_IS_LOST
	if _, found, err := session.Wait(t.Context(), time.Millisecond); found || err != nil {
		t.Errorf("with a lost GPU: %t, %v", found, err)
	}
	if n := len(l.EventSetCreateCalls()); n != 2 {
		t.Errorf("after a GPU was lost there were %d sets of events, want a new one", n)
	}
	l.waited = nvml.ERROR_DRIVER_NOT_LOADED
	if _, _, err := session.Wait(t.Context(), time.Hour); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
}

// A driver that is not there is one to wait for; anything else says what failed.
func TestOpenFails(t *testing.T) {
	l := newLibrary(t, "gb200")
	for ret, absent := range map[nvml.Return]bool{
		nvml.ERROR_LIBRARY_NOT_FOUND: true, nvml.ERROR_DRIVER_NOT_LOADED: true,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: true, nvml.ERROR_NO_PERMISSION: false,
	} {
		l.InitFunc = func() nvml.Return { return ret }
		if _, err := (Driver{Library: l}).Open(); err == nil ||
			errors.Is(err, gpu.ErrNoDriver) != absent {
			t.Errorf("%v: %v", ret, err)
		}
	}
}

// go-nvml's own machine knows little: what it does not know is left out.
func TestMachineOfGoNVML(t *testing.T) {
	server := dgxa100.New()
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	for _, d := range server.Devices {
		d := d.(*dgxa100.Device)
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64,
			nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
			return 0, 0, false, false, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
		d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	session, err := Driver{Library: server, Root: t.TempDir()}.Open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := session.Read()
	if err != nil || len(got.GPUs) != 8 || got.Driver != server.DriverVersion {
		t.Fatalf("%+v: %v", got, err)
	}
	for i, g := range got.GPUs {
		want := server.Devices[i].(*dgxa100.Device)
		if g.UUID != want.UUID || g.Minor != i || g.Node != -1 || g.Reading != (gpu.Reading{}) {
			t.Errorf("GPU %d: %+v", i, g)
		}
	}
}
