package gpu

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	visibleDevices = "NVIDIA_VISIBLE_DEVICES"
	// mountsDir is the directory where NVIDIA's runtime looks for mounts that name devices.
	mountsDir = "/var/run/nvidia-container-devices"
	// cdiKind is the kind of our CDI spec of GPUs.
	cdiKind = cdiVendor + "/gpu"
	// mpsDir holds the MPS control daemon's pipe in containers.
	mpsDir = "/mps"
)

// controlNodes returns the device nodes that every container with a GPU needs, if they exist.
func controlNodes() []string {
	return []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
		"/dev/nvidia-modeset"}
}

// answer returns what a container gets for its devices. It keeps no state: the same devices get the
// same answer. Several replicas of a unit count as one unit.
func (o offer) answer(resource string, devices []device, set Settings) (
	*v1beta1.ContainerAllocateResponse, error) {
	if o.shared != nil && o.shared.OnlyOne && len(devices) > 1 {
		return nil, fmt.Errorf("%d of %s are asked for, which are shares of GPUs: more than one "+
			"does not give more of a GPU; ask for 1", len(devices), resource)
	}
	var units []*unit
	for _, d := range devices {
		if !slices.Contains(units, d.unit) {
			units = append(units, d.unit)
		}
	}
	slices.SortFunc(units, byIndex)
	out := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{},
		Annotations: map[string]string{}}
	extras, err := set.extras()
	if err != nil {
		return nil, err
	}
	names := namesOf(units, set.ID)
	for _, strategy := range set.List {
		listed(out, strategy, names, extras, set.CDI.AnnotationPrefix)
	}
	if set.PassDeviceSpecs {
		out.Devices = deviceSpecs(units, set.DevRoot)
	}
	for _, e := range extras {
		e.addTo(out, set)
	}
	if o.shared != nil && o.shared.MPS {
		pipe := path.Join(mpsDir, resource, "pipe")
		out.Envs["CUDA_MPS_PIPE_DIRECTORY"] = pipe
		out.Mounts = append(out.Mounts,
			&v1beta1.Mount{HostPath: path.Join(set.MPSRoot, resource, "pipe"), ContainerPath: pipe},
			&v1beta1.Mount{HostPath: path.Join(set.MPSRoot, "shm"), ContainerPath: "/dev/shm"})
	}
	return out, nil
}

func namesOf(units []*unit, by IDStrategy) (names []string) {
	for _, u := range units {
		if by == ByIndex {
			names = append(names, u.index)
		} else {
			names = append(names, u.id)
		}
	}
	return names
}

// listed adds a container's devices to an answer, as the strategy says.
func listed(out *v1beta1.ContainerAllocateResponse, strategy ListStrategy, names []string,
	extras []Extra, prefix string) {
	var qualified []string
	for _, name := range names {
		qualified = append(qualified, cdiKind+"="+name)
	}
	for _, e := range extras {
		qualified = append(qualified, e.kind()+"="+e.parts().device)
	}
	switch strategy {
	case EnvVar:
		out.Envs[visibleDevices] = strings.Join(names, ",")
	case VolumeMounts:
		out.Envs[visibleDevices] = mountsDir
		for _, name := range names {
			out.Mounts = append(out.Mounts, &v1beta1.Mount{
				HostPath: "/dev/null", ContainerPath: path.Join(mountsDir, name)})
		}
	case CDIAnnotations:
		out.Annotations[prefix+"nvidia-device-plugin_"+annotationKey(names)] =
			strings.Join(qualified, ",")
	case CDICRI:
		for _, name := range qualified {
			out.CdiDevices = append(out.CdiDevices, &v1beta1.CDIDevice{Name: name})
		}
	}
}

// annotationKey makes an annotation's name unique by its first device. The name in a key has at
// most 63 characters.
func annotationKey(names []string) string {
	first := strings.ReplaceAll(names[0], ":", "_")
	return first[:min(len(first), 63-len("nvidia-device-plugin_"))]
}

func deviceSpecs(units []*unit, root string) (specs []*v1beta1.DeviceSpec) {
	all := present(root)
	for _, u := range units {
		all = append(all, u.nodes...)
	}
	for n, node := range all {
		if !slices.Contains(all[:n], node) { // MIG devices of one GPU share its node
			specs = append(specs, deviceSpec(node, root))
		}
	}
	return specs
}

func deviceSpec(n node, root string) *v1beta1.DeviceSpec {
	return &v1beta1.DeviceSpec{HostPath: filepath.Join(root, n.host),
		ContainerPath: n.container, Permissions: "rw"}
}

// present returns the control nodes that the host has.
func present(root string) (nodes []node) {
	for _, path := range controlNodes() {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			nodes = append(nodes, node{path, path})
		}
	}
	return nodes
}
