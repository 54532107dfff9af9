//go:build cgo

package nvml

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// brands and architectures are NVIDIA's words for NVML's numbers.
var (
	brands = map[nvml.BrandType]string{
		nvml.BRAND_QUADRO: "Quadro", nvml.BRAND_TESLA: "Tesla", nvml.BRAND_NVS: "NVS",
		nvml.BRAND_GRID: "Grid", nvml.BRAND_GEFORCE: "GeForce", nvml.BRAND_TITAN: "Titan",
		nvml.BRAND_NVIDIA_VAPPS: "NvidiaVApps", nvml.BRAND_NVIDIA_VPC: "NvidiaVPC",
		nvml.BRAND_NVIDIA_VCS: "NvidiaVCS", nvml.BRAND_NVIDIA_VWS: "NvidiaVWS",
		nvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming", nvml.BRAND_QUADRO_RTX: "QuadroRTX",
		nvml.BRAND_NVIDIA_RTX: "NvidiaRTX", nvml.BRAND_NVIDIA: "Nvidia",
		nvml.BRAND_GEFORCE_RTX: "GeForceRTX", nvml.BRAND_TITAN_RTX: "TitanRTX",
	}
	architectures = map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell",
		nvml.DEVICE_ARCH_PASCAL: "Pascal", nvml.DEVICE_ARCH_VOLTA: "Volta",
		nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
		nvml.DEVICE_ARCH_ADA: "Ada Lovelace", nvml.DEVICE_ARCH_HOPPER: "Hopper",
		nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	}
)

// traits returns what the driver tells of the GPU, without what it does not.
func (f functions) traits(d nvml.Device) (out gpu.Traits) {
	if brand, ret := d.GetBrand(); ret == nvml.SUCCESS {
		out.Brand = brands[brand]
	}
	if f[architecture] {
		if arch, ret := d.GetArchitecture(); ret == nvml.SUCCESS {
			out.Architecture = architectures[arch]
		}
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		out.Compute = fmt.Sprintf("%d.%d", major, minor)
	}
	if memory, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		out.Memory = memory.Total
	}
	return out
}

// cuda returns the version of CUDA that the driver supports; "": it does not tell.
func cuda(library nvml.Interface) string {
	version, ret := library.SystemGetCudaDriverVersion()
	if ret != nvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

// profile is a profile of MIG devices, with the places for it.
type profile struct {
	nvml.GpuInstanceProfileInfo
	places []nvml.GpuInstancePlacement
}

// profiles returns the profiles of a GPU in MIG mode.
func (f functions) profiles(d nvml.Device) (out []profile) {
	if !f[placements] {
		return nil
	}
	for i := range nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX { // the later ones are for graphics
		info, ret := d.GetGpuInstanceProfileInfo(i)
		if ret != nvml.SUCCESS {
			continue // the GPU has no such profile
		}
		places, ret := d.GetGpuInstancePossiblePlacements(&info)
		if ret == nvml.SUCCESS {
			out = append(out, profile{info, places})
		}
	}
	return out
}

// partitions returns all places for MIG devices of a GPU in MIG mode with this much memory.
func (f functions) partitions(d nvml.Device, memory uint64) (out []gpu.Partition) {
	if memory == 0 { // a profile's name has its part of the memory
		return nil
	}
	for _, p := range f.profiles(d) {
		name := profileOf(nvml.DeviceAttributes{GpuInstanceSliceCount: p.SliceCount,
			ComputeInstanceSliceCount: p.SliceCount, SharedJpegCount: p.JpegCount,
			SharedOfaCount: p.OfaCount, MemorySizeMB: p.MemorySizeMB}, memory)
		for _, place := range p.places {
			out = append(out, gpu.Partition{Profile: name, ID: int(p.Id), Start: int(place.Start),
				Size: int(place.Size), Compute: int(p.SliceCount), JPEG: int(p.JpegCount),
				OFA: int(p.OfaCount), Memory: p.MemorySizeMB << 20})
		}
	}
	return out
}

// start returns the first memory slice of a GPU instance.
func (f functions) start(d nvml.Device, instance int) int {
	if f[placements] {
		if gi, ret := d.GetGpuInstanceById(instance); ret == nvml.SUCCESS {
			if info, ret := gi.GetInfo(); ret == nvml.SUCCESS {
				return int(info.Placement.Start)
			}
		}
	}
	return gpu.UnknownStart
}

// root returns the PCIe root complex of a PCI device from sysfs; "": unknown.
func (s *session) root(bus string) string {
	path, err := filepath.EvalSymlinks(filepath.Join("/", s.Root, "sys/bus/pci/devices", bus))
	if err != nil {
		return ""
	}
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "pci") {
			return part
		}
	}
	return ""
}
