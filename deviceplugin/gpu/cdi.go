package gpu

import (
	"fmt"
	"path/filepath"
	"slices"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// cdiFile is the name of our spec of a class, without its ending.
func cdiFile(class string) string { return cdiVendor + "-" + class }

// cdiSpec is what CDI is told of all units: their device nodes, and with each the control nodes and
// the driver's files, if there are any. It is nil without units, which no spec can be.
func cdiSpec(units []*unit, set Settings, files *specs.ContainerEdits) *specs.Spec {
	if len(units) == 0 {
		return nil
	}
	spec := &specs.Spec{Kind: cdiKind}
	if files != nil { // else the libraries are for NVIDIA's runtime to add
		nothingMore := []string{visibleDevices + "=void"} // than the spec has
		spec.ContainerEdits = specs.ContainerEdits{
			Env: append(nothingMore, files.Env...), Mounts: files.Mounts, Hooks: files.Hooks,
		}
	}
	spec.ContainerEdits.DeviceNodes = cdiNodes(present(set.DevRoot), set.DevRoot)
	units = slices.Clone(units)
	slices.SortFunc(units, byIndex)
	names := namesOf(units, set.ID)
	for n, u := range units {
		spec.Devices = append(spec.Devices, specs.Device{Name: names[n],
			ContainerEdits: specs.ContainerEdits{DeviceNodes: cdiNodes(u.nodes, set.DevRoot)}})
	}
	return spec
}

func cdiNodes(nodes []node, root string) (out []*specs.DeviceNode) {
	for _, n := range nodes {
		out = append(out, &specs.DeviceNode{Path: n.container, Permissions: "rw",
			HostPath: filepath.Join(root, n.host)})
	}
	return out
}

// writeCDI puts the spec of a class where container runtimes find it; nil takes it away.
func writeCDI(dir, class string, spec *specs.Spec) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if spec == nil {
		return cache.RemoveSpec(cdiFile(class))
	}
	versioned := *spec
	if versioned.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if err := cache.WriteSpec(&versioned, cdiFile(class)); err != nil {
		return fmt.Errorf("write CDI spec to %s: %w", dir, err)
	}
	return nil
}
