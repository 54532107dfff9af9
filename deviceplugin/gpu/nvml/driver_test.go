//go:build cgo

package nvml

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	nvmlmock "github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
)

// Read through the library, a machine has the GPUs, links and health of the rig.
func TestRead(t *testing.T) {
	for _, name := range mock.Names() {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, name)
			session := l.open(t)
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

// NVLinks that were up and are not any more count as down; a lost GPU is absent.
func TestReadAfterFaults(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	session := l.open(t)
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
	session := l.open(t)
	got, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := l.read(t).GPUs[1].Instances
	want[1].Nodes, want[2].Nodes, want[3].Nodes = nil, nil, nil // mig-minors does not have them
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

// Events name the GPU and the instance; a wait without an event ends.
func TestWait(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	l.events = []nvml.EventData{
		{Device: l.device(t, 3), EventType: nvml.EventTypeXidCriticalError, EventData: 79,
			GpuInstanceId: noInstance, ComputeInstanceId: noInstance},
		{Device: l.device(t, 4), EventType: nvml.EventTypeDoubleBitEccError, EventData: 7,
			GpuInstanceId: 2, ComputeInstanceId: 0},
	}
	session := l.open(t)
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

// An absent driver gives ErrNoDriver; any other error says what failed.
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

// go-nvml's own machine supports little; the rest is skipped.
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
		d.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
			return nil, nvml.ERROR_NOT_SUPPORTED
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

// One GPU's error does not affect the others, whatever it is; a driver that has gone does.
func TestOneOddGPU(t *testing.T) {
	for ret, lost := range map[nvml.Return]bool{
		nvml.ERROR_GPU_IS_LOST: true, nvml.ERROR_NOT_FOUND: true, nvml.ERROR_UNKNOWN: false,
		nvml.ERROR_IRQ_ISSUE: false, nvml.ERROR_INSUFFICIENT_POWER: false,
		nvml.ERROR_NO_PERMISSION: false, nvml.ERROR_TIMEOUT: false,
	} {
		l := newLibrary(t, "dgxh100")
		open := l.DeviceGetHandleByIndexFunc
		l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == 5 {
				return nil, ret
			}
			d, opened := open(i)
			device, ok := d.(*nvmlmock.Device)
			switch {
			case ok && i == 3:
				device.GetUUIDFunc = func() (string, nvml.Return) { return "", ret }
			case ok && i == 1 && ret != nvml.ERROR_NO_PERMISSION:
				device.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, ret }
			case ok && i == 2 && !lost && ret != nvml.ERROR_NO_PERMISSION:
				device.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (
					uint64, nvml.Return) {
					return 0, ret
				}
			}
			return d, opened
		}
		session := l.open(t)
		got, err := session.Read()
		odd := []int{3, 5}
		if ret != nvml.ERROR_NO_PERMISSION { // it only says that something is not known
			if odd = append(odd, 1); !lost {
				odd = append(odd, 2)
			}
		}
		if err != nil || len(got.GPUs) != 8-len(odd) || len(got.Links) != len(got.GPUs) ||
			len(got.Silent) != len(odd) {
			t.Errorf("%v: %d GPUs, %v: %v", ret, len(got.GPUs), got.Silent, err)
		}
		for _, index := range odd {
			if why := got.Silent[index]; why.Lost != lost || why.Said == "" {
				t.Errorf("%v: GPU %d is %+v", ret, index, why)
			}
		}
	}
	l := newLibrary(t, "dgxh100")
	session := l.open(t)
	l.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) {
		return nil, nvml.ERROR_UNINITIALIZED
	}
	if _, err := session.Read(); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("of a driver that has gone: %v", err)
	}
}

// A MIG device that is deleted while it is read is skipped; the others stay.
func TestMIGDeviceVanishes(t *testing.T) {
	for ret, doubts := range map[nvml.Return]int{nvml.ERROR_NOT_FOUND: 0, nvml.ERROR_UNKNOWN: 1} {
		l := newLibrary(t, "dgxh100")
		for _, order := range []string{"mig 1 on", "divide 1 1g.10gb=3"} {
			if err := l.rig.Do(order); err != nil {
				t.Fatal(err)
			}
		}
		open := l.DeviceGetHandleByIndexFunc
		l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			d, opened := open(i)
			if device, ok := d.(*nvmlmock.Device); ok {
				place := device.GetMigDeviceHandleByIndexFunc
				device.GetMigDeviceHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
					one, opened := place(n)
					if m, ok := one.(*nvmlmock.Device); ok && n == 2 {
						m.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
							return nvml.DeviceAttributes{}, ret
						}
					}
					return one, opened
				}
			}
			return d, opened
		}
		session := l.open(t)
		got, err := session.Read()
		if err != nil || len(got.GPUs) != 8 || len(got.GPUs[1].Instances) != 2 ||
			len(got.Warnings) != doubts {
			t.Errorf("%v: %d GPUs, %d MIG devices, %q: %v", ret, len(got.GPUs),
				len(got.GPUs[1].Instances), got.Warnings, err)
		}
	}
}

// Functions that the library of an older driver lacks are not called.
func TestOlderLibrary(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	for name := range optional {
		l.lacks = append(l.lacks, name)
	}
	open := l.DeviceGetHandleByIndexFunc
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		d, opened := open(i)
		if device, ok := d.(*nvmlmock.Device); ok { // without a function the mock panics when it is called
			device.GetMigModeFunc, device.GetRemappedRowsFunc = nil, nil
			device.GetMemoryAffinityFunc, device.GetNvLinkRemoteDeviceTypeFunc = nil, nil
			device.GetFieldValuesFunc = nil
		}
		return d, opened
	}
	session := l.open(t)
	got, err := session.Read()
	if err != nil || len(got.GPUs) != 8 || len(got.Warnings) != len(optional) {
		t.Errorf("%d GPUs, said %q: %v", len(got.GPUs), got.Warnings, err)
	}
}
