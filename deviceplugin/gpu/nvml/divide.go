//go:build cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// Divide implements gpu.Divider.
func (d Driver) Divide(uuid string, place gpu.Partition) (out gpu.Instance, err error) {
	return out, d.with(uuid, func(handle nvml.Device, f functions) error {
		for _, p := range f.profiles(handle) {
			if int(p.Id) != place.ID {
				continue
			}
			if err := f.sweep(handle, place); err != nil {
				return err
			}
			at := nvml.GpuInstancePlacement{Start: uint32(place.Start), Size: uint32(place.Size)}
			made, ret := handle.CreateGpuInstanceWithPlacement(&p.GpuInstanceProfileInfo, &at)
			if ret != nvml.SUCCESS {
				return failed(fmt.Sprintf("make %s at %d", place.Profile, place.Start), ret)
			}
			if out, err = d.complete(handle, made, place); err != nil {
				return errors.Join(err, errorOf("remove what was made", made.Destroy()))
			}
			return nil
		}
		return fmt.Errorf("the GPU has no profile %s", place.Profile)
	})
}

// complete gives a GPU instance one compute instance that has all of it. It returns the MIG device.
func (d Driver) complete(handle nvml.Device, made nvml.GpuInstance, place gpu.Partition) (
	out gpu.Instance, err error) {
	info, ret := made.GetInfo()
	if ret != nvml.SUCCESS {
		return out, failed("read the new GPU instance", ret)
	}
	compute, ret := wholeCompute(made, place.Compute)
	if ret != nvml.SUCCESS {
		return out, failed("make a compute instance", ret)
	}
	undo := func(err error) error {
		return errors.Join(err, errorOf("remove the compute instance", compute.Destroy()))
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return out, undo(failed("read the GPU's number", ret))
	}
	s := &session{Driver: d, functions: lookUp(d.Library)}
	all, _, err := s.instances(handle, minor)
	if err != nil {
		return out, undo(err)
	}
	for _, one := range all {
		if one.GPU == int(info.Id) {
			return one, nil
		}
	}
	return out, undo(errors.New("the driver does not list the new MIG device"))
}

// wholeCompute makes a compute instance with that many slices.
func wholeCompute(made nvml.GpuInstance, slices int) (nvml.ComputeInstance, nvml.Return) {
	for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := made.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS && int(info.SliceCount) == slices {
			return made.CreateComputeInstance(&info)
		}
	}
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// sweep removes GPU instances in the place's slices that have no compute instance: they are no MIG
// device, and a killed process left them.
func (f functions) sweep(handle nvml.Device, place gpu.Partition) error {
	for _, p := range f.profiles(handle) {
		found, ret := handle.GetGpuInstances(&p.GpuInstanceProfileInfo)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, gi := range found {
			info, ret := gi.GetInfo()
			has := info.Placement
			if ret != nvml.SUCCESS || computes(gi) > 0 || int(has.Start) >= place.Start+place.Size ||
				place.Start >= int(has.Start+has.Size) {
				continue
			}
			if err := errorOf("remove an empty GPU instance", gi.Destroy()); err != nil {
				return err
			}
		}
	}
	return nil
}

// computes counts the compute instances of a GPU instance.
func computes(gi nvml.GpuInstance) (count int) {
	for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		found, _ := gi.GetComputeInstances(&info) // none of a profile that cannot be read
		count += len(found)
	}
	return count
}

// Remove implements gpu.Divider.
func (d Driver) Remove(uuid, instance string) error {
	return d.with(uuid, func(handle nvml.Device, _ functions) error {
		most, ret := handle.GetMaxMigDeviceCount()
		if ret != nvml.SUCCESS {
			return failed("count its MIG devices", ret)
		}
		for i := range most {
			one, ret := handle.GetMigDeviceHandleByIndex(i)
			if ret != nvml.SUCCESS {
				continue // an unused place
			}
			if found, ret := one.GetUUID(); ret != nvml.SUCCESS || found != instance {
				continue
			}
			return remove(handle, one)
		}
		return nil // it has gone
	})
}

func remove(handle, one nvml.Device) error {
	gi, ret := one.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return failed("read its GPU instance", ret)
	}
	ci, ret := one.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return failed("read its compute instance", ret)
	}
	part, ret := handle.GetGpuInstanceById(gi)
	if ret != nvml.SUCCESS {
		return failed("open its GPU instance", ret)
	}
	compute, ret := part.GetComputeInstanceById(ci)
	if ret != nvml.SUCCESS {
		return failed("open its compute instance", ret)
	}
	if ret := compute.Destroy(); ret != nvml.SUCCESS {
		return failed("remove its compute instance", ret)
	}
	if ret := part.Destroy(); ret != nvml.SUCCESS {
		return failed("remove its GPU instance", ret)
	}
	return nil
}

// with calls do for a GPU, with the library initialized. The library counts its users.
func (d Driver) with(uuid string, do func(nvml.Device, functions) error) error {
	if ret := d.Library.Init(); ret != nvml.SUCCESS {
		return failed("initialize NVML", ret)
	}
	defer func() { _ = d.Library.Shutdown() }() // the next call reports what fails here
	f := lookUp(d.Library)
	if !f[placements] {
		return fmt.Errorf("the driver's library has no %s: claims cannot divide GPUs with it", placements)
	}
	handle, ret := d.Library.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return failed("open GPU "+uuid, ret)
	}
	if err := do(handle, f); err != nil {
		return fmt.Errorf("GPU %s: %w", uuid, err)
	}
	return nil
}
