package gpu

import (
	"path/filepath"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/serve"
)

// cdiFile returns the name of our spec of a class, without extension.
func cdiFile(class string) string { return cdiVendor + "-" + class }

// cdiSpec returns the CDI spec of all units: their device nodes and, for each, the control nodes
// and the driver's files, if there are any. It returns nil without units: a spec needs a device.
func cdiSpec(units []*unit, set Settings, files *specs.ContainerEdits) *specs.Spec {
	if len(units) == 0 {
		return nil
	}
	spec := &specs.Spec{Kind: cdiKind, ContainerEdits: commonEdits(set, files)}
	units = slices.Clone(units)
	slices.SortFunc(units, byIndex)
	names := namesOf(units, set.ID)
	for n, u := range units {
		spec.Devices = append(spec.Devices, specs.Device{Name: names[n],
			ContainerEdits: specs.ContainerEdits{DeviceNodes: cdiNodes(u.nodes, set.DevRoot)}})
	}
	return spec
}

// commonEdits returns what every container with GPUs gets: the control nodes, and the driver's
// files if there are any.
func commonEdits(set Settings, files *specs.ContainerEdits) (out specs.ContainerEdits) {
	if files != nil { // else NVIDIA's runtime adds the libraries
		nothingMore := []string{visibleDevices + "=void"} // the spec is complete
		out = specs.ContainerEdits{
			Env: append(nothingMore, files.Env...), Mounts: files.Mounts, Hooks: files.Hooks,
		}
	}
	out.DeviceNodes = cdiNodes(present(set.DevRoot), set.DevRoot)
	return out
}

func cdiNodes(nodes []node, root string) (out []*specs.DeviceNode) {
	for _, n := range nodes {
		out = append(out, &specs.DeviceNode{Path: n.container, Permissions: "rw",
			HostPath: filepath.Join(root, n.host)})
	}
	return out
}

// writeCDI writes the spec of a class where container runtimes find it; nil removes it.
func writeCDI(dir, class string, spec *specs.Spec) error {
	return serve.WriteSpec(dir, cdiFile(class), spec)
}
