//go:build cgo

package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	nvmlmock "github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// divisible is a GPU of go-nvml's mock machine in MIG mode, with the functions that the mock lacks.
func divisible(t *testing.T) (Driver, *dgxa100.Device) {
	t.Helper()
	server := dgxa100.New()
	d := server.Devices[0].(*dgxa100.Device)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	instances := func() []*dgxa100.GpuInstance {
		var all []*dgxa100.GpuInstance
		for gi := range d.GpuInstances {
			gi.GetComputeInstanceByIdFunc = func(id int) (nvml.ComputeInstance, nvml.Return) {
				for ci := range gi.ComputeInstances {
					if int(ci.Info.Id) == id {
						return ci, nvml.SUCCESS
					}
				}
				return nil, nvml.ERROR_NOT_FOUND
			}
			all = append(all, gi)
		}
		slices.SortFunc(all, func(a, b *dgxa100.GpuInstance) int {
			return cmp.Compare(a.Info.Id, b.Info.Id)
		})
		return all
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for _, gi := range instances() {
			if int(gi.Info.Id) == id {
				return gi, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	d.GetMigDeviceHandleByIndexFunc = func(at int) (nvml.Device, nvml.Return) {
		for _, gi := range instances() {
			for ci := range gi.ComputeInstances {
				if at--; at < 0 {
					return migDevice(gi, ci), nvml.SUCCESS
				}
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	return Driver{Library: server}, d
}

func migDevice(gi *dgxa100.GpuInstance, ci *dgxa100.ComputeInstance) nvml.Device {
	return &nvmlmock.Device{
		GetUUIDFunc: func() (string, nvml.Return) {
			return fmt.Sprintf("MIG-%d-%d", gi.Info.Id, ci.Info.Id), nvml.SUCCESS
		},
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return int(gi.Info.Id), nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return int(ci.Info.Id), nvml.SUCCESS },
		GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
			for _, p := range dgxa100.MIGProfiles.GpuInstanceProfiles {
				if p.Id == gi.Info.ProfileId {
					return nvml.DeviceAttributes{GpuInstanceSliceCount: p.SliceCount,
						ComputeInstanceSliceCount: p.SliceCount, MemorySizeMB: p.MemorySizeMB,
						SharedJpegCount: p.JpegCount, SharedOfaCount: p.OfaCount}, nvml.SUCCESS
				}
			}
			return nvml.DeviceAttributes{}, nvml.ERROR_NOT_FOUND
		},
	}
}

func placeOf(t *testing.T, d Driver, device *dgxa100.Device, profile string) gpu.Partition {
	t.Helper()
	memory, _ := device.GetMemoryInfo()
	all := lookUp(d.Library).partitions(device, memory.Total)
	at := slices.IndexFunc(all, func(p gpu.Partition) bool { return p.Profile == profile })
	if at < 0 {
		t.Fatalf("no place for %s in %+v", profile, all)
	}
	return all[at]
}

// A MIG device is made at its place with all of its compute slices, and goes as a whole.
func TestDivide(t *testing.T) {
	d, device := divisible(t)
	place := placeOf(t, d, device, "3g.20gb")
	made, err := d.Divide(device.UUID, place)
	if err != nil {
		t.Fatal(err)
	}
	if made.Profile != "3g.20gb" || made.Start != place.Start || made.UUID != "MIG-0-0" {
		t.Errorf("%+v at %+v", made, place)
	}
	if err := d.Remove(device.UUID, "MIG-of-others"); err != nil || len(device.GpuInstances) != 1 {
		t.Errorf("%v: one that is not there was removed: %v", err, device.GpuInstances)
	}
	if err := d.Remove(device.UUID, made.UUID); err != nil || len(device.GpuInstances) > 0 {
		t.Errorf("%v: left are %v", err, device.GpuInstances)
	}
}

// A GPU instance without a compute instance, which a killed process left, makes room; and one that
// cannot be completed does not stay.
func TestDivideAfterKill(t *testing.T) {
	d, device := divisible(t)
	place := placeOf(t, d, device, "7g.40gb")
	info, _ := device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	if _, ret := device.CreateGpuInstanceWithPlacement(&info,
		&nvml.GpuInstancePlacement{Start: 3, Size: 1}); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if _, err := d.Divide(device.UUID, place); err != nil || len(device.GpuInstances) != 1 {
		t.Errorf("%v: there are %v", err, device.GpuInstances)
	}
	d, device = divisible(t)
	device.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	_, err := d.Divide(device.UUID, place)
	if err == nil || !strings.Contains(err.Error(), "does not list the new MIG device") ||
		len(device.GpuInstances) > 0 {
		t.Errorf("%v: there are %v", err, device.GpuInstances)
	}
}

// Traits and places are read from the driver.
func TestTraits(t *testing.T) {
	d, _ := divisible(t)
	device, ret := d.Library.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	got := lookUp(d.Library).traits(device)
	if got.Brand != "Nvidia" || got.Architecture != "Ampere" || got.Compute != "8.0" ||
		cuda(d.Library) != "12.4" {
		t.Errorf("%+v, CUDA %s", got, cuda(d.Library))
	}
}
