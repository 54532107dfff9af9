//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// instances returns the MIG devices of a GPU. It skips those that cannot be read, since the operator
// may be dividing the GPU anew; doubts names them unless they have gone.
func (s *session) instances(d nvml.Device, minor int) (out []gpu.Instance, doubts []string, err error) {
	most, ret := d.GetMaxMigDeviceCount()
	if err := errorOf("count its MIG devices", ret); err != nil {
		return nil, nil, err
	}
	memory, ret := d.GetMemoryInfo()
	if err := errorOf("read its memory", ret); err != nil {
		return nil, nil, err
	}
	if memory.Total == 0 { // a profile's name has its part of the memory
		return nil, nil, errors.New("read its memory: the driver reports none")
	}
	caps := s.capabilities()
	for i := range most {
		handle, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // an unused place
		}
		err := errorOf(fmt.Sprintf("open MIG device %d", i), ret)
		var one gpu.Instance
		if err == nil {
			one, err = instance(handle, memory.Total)
		}
		switch {
		case errors.Is(err, gpu.ErrNoDriver):
			return nil, nil, err
		case errors.Is(err, errGone):
			continue
		case err != nil:
			doubts = append(doubts, "a MIG device is not offered: "+err.Error())
			continue
		}
		for _, access := range []string{
			fmt.Sprintf("gpu%d/gi%d/access", minor, one.GPU),
			fmt.Sprintf("gpu%d/gi%d/ci%d/access", minor, one.GPU, one.Compute),
		} {
			if number, known := caps[access]; known {
				one.Nodes = append(one.Nodes, "/dev/nvidia-caps/nvidia-cap"+number)
			}
		}
		one.Start = s.start(d, one.GPU)
		out = append(out, one)
	}
	return out, doubts, nil
}

func instance(d nvml.Device, total uint64) (out gpu.Instance, err error) {
	var ret nvml.Return
	out.UUID, ret = d.GetUUID()
	if err := errorOf("read the UUID of a MIG device", ret); err != nil {
		return out, err
	}
	out.GPU, ret = d.GetGpuInstanceId()
	if err := errorOf("read the GPU instance of "+out.UUID, ret); err != nil {
		return out, err
	}
	out.Compute, ret = d.GetComputeInstanceId()
	if err := errorOf("read the compute instance of "+out.UUID, ret); err != nil {
		return out, err
	}
	attributes, ret := d.GetAttributes()
	if err := errorOf("read the attributes of "+out.UUID, ret); err != nil {
		return out, err
	}
	out.Profile = profileOf(attributes, total)
	return out, nil
}

// profileOf returns the profile's name: "1g.10gb", "1c.2g.20gb" for a part of a GPU instance, and
// "+me" for extra media engines. The memory is the profile's nominal size: eighths of the GPU's,
// rounded up.
func profileOf(a nvml.DeviceAttributes, total uint64) string {
	const mib, gib = 1 << 20, 1 << 30
	eighths := math.Ceil(float64(a.MemorySizeMB*mib) / float64(total) * 8)
	gigabytes := math.Round(eighths / 8 * float64((total+gib-1)/gib))
	name := fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, int(gigabytes))
	if a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount {
		name = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, name)
	}
	if a.GpuInstanceSliceCount == 1 && a.SharedOfaCount > 0 && a.SharedJpegCount > 0 {
		name += "+me"
	}
	return name
}

// capabilities returns the minor numbers of /dev/nvidia-caps by what they give access to.
func (s *session) capabilities() map[string]string {
	raw, err := os.ReadFile(filepath.Join("/", s.Root, "proc/driver/nvidia-caps/mig-minors"))
	if err != nil {
		return nil // NVIDIA's runtime adds them to containers
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if what, minor, found := strings.Cut(strings.TrimSpace(line), " "); found {
			out[what] = strings.TrimSpace(minor)
		}
	}
	return out
}
