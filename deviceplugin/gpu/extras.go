package gpu

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Extra is something that containers with GPUs get besides them. Its value is the class of its CDI
// kind, under NVIDIA's names.
type Extra string

const (
	GDRCopy Extra = "gdrcopy"
	GDS     Extra = "gds"
	MOFED   Extra = "mofed"
	IMEX    Extra = "imex-channel"
)

// cdiVendor is the vendor of all our CDI kinds, the same as of NVIDIA's plugin.
const cdiVendor = "k8s.device-plugin.nvidia.com"

// extraParts holds the parts of an extra.
type extraParts struct {
	// variable and value make NVIDIA's runtime add it; device is its CDI device.
	variable, value, device string
	// nodes are patterns of its device nodes; mounts are further files.
	nodes, mounts []string
}

func (e Extra) parts() extraParts {
	switch e {
	case GDRCopy:
		return extraParts{variable: "NVIDIA_GDRCOPY", value: "enabled", device: "all",
			nodes: []string{"/dev/gdrdrv"}}
	case GDS:
		return extraParts{variable: "NVIDIA_GDS", value: "enabled", device: "all",
			nodes: []string{"/dev/nvidia-fs*"}, mounts: []string{"/etc/cufile.json", "/run/udev"}}
	case MOFED:
		return extraParts{variable: "NVIDIA_MOFED", value: "enabled", device: "all",
			nodes: []string{"/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"}}
	default:
		return extraParts{variable: "NVIDIA_IMEX_CHANNELS", value: "0", device: "0",
			nodes: []string{"/dev/nvidia-caps-imex-channels/channel0"}}
	}
}

func (e Extra) kind() string { return cdiVendor + "/" + string(e) }

// present returns the device nodes that the host has now.
func (e Extra) present(root string) (nodes []node) {
	for _, pattern := range e.parts().nodes {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well-formed
		for _, at := range found {
			path := filepath.Join("/", at[len(filepath.Clean(root)):])
			nodes = append(nodes, node{path, path})
		}
	}
	return nodes
}

// spec returns the extra's CDI spec. It exists even if the host lacks the device nodes, so that a
// container that names the device can start.
func (e Extra) spec(root string) *specs.Spec {
	parts := e.parts()
	edits := specs.ContainerEdits{Env: []string{parts.variable + "=" + parts.value},
		DeviceNodes: cdiNodes(e.present(root), root)}
	for _, pattern := range parts.mounts {
		if found, _ := filepath.Glob(pattern); found != nil {
			edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: pattern,
				ContainerPath: pattern,
				Options:       []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}})
		}
	}
	return &specs.Spec{Kind: e.kind(),
		Devices: []specs.Device{{Name: parts.device, ContainerEdits: edits}}}
}

// extras returns what containers get now. If the host lacks an IMEX channel, it is skipped or, if
// required, an error.
func (s Settings) extras() (out []Extra, err error) {
	for _, e := range s.Extras {
		if e == IMEX && e.present(s.DevRoot) == nil {
			if s.IMEXRequired {
				return nil, fmt.Errorf("IMEX channel 0 is required, and there is no %s: load the "+
					"driver with NVreg_CreateImexChannel0=1, or set --imex-required=false",
					filepath.Join(s.DevRoot, e.parts().nodes[0]))
			}
			continue
		}
		out = append(out, e)
	}
	return out, nil
}

// addTo gives a container the extra in each configured way.
func (e Extra) addTo(out *v1beta1.ContainerAllocateResponse, set Settings) {
	parts := e.parts()
	if e == IMEX && slices.Contains(set.List, VolumeMounts) {
		out.Mounts = append(out.Mounts, &v1beta1.Mount{HostPath: "/dev/null",
			ContainerPath: path.Join(mountsDir, "imex", parts.device)})
	}
	if e != IMEX || slices.Contains(set.List, EnvVar) {
		out.Envs[parts.variable] = parts.value
	}
	if e == IMEX && set.PassDeviceSpecs {
		for _, n := range e.present(set.DevRoot) {
			out.Devices = append(out.Devices, deviceSpec(n, set.DevRoot))
		}
	}
}
