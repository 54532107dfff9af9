package gpu

import (
	"fmt"
	"path/filepath"
	"slices"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// cdiFile is the name of our spec, without its ending.
const cdiFile = "k8s.device-plugin.nvidia.com-gpu"

// cdiSpec is what CDI is told of all units: their device nodes, and the control nodes with each. It
// is nil without units, which no spec can be.
func cdiSpec(units []*unit, set Settings) *specs.Spec {
	if len(units) == 0 {
		return nil
	}
	spec := &specs.Spec{Kind: cdiKind, ContainerEdits: specs.ContainerEdits{
		// What NVIDIA's runtime would add by the variable is in the spec.
		Env:         []string{visibleDevices + "=void"},
		DeviceNodes: cdiNodes(present(set.DevRoot), set.DevRoot),
	}}
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

// writeCDI puts the spec where container runtimes find it; nil takes it away.
func writeCDI(dir string, spec *specs.Spec) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if spec == nil {
		return cache.RemoveSpec(cdiFile)
	}
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if err := cache.WriteSpec(spec, cdiFile); err != nil {
		return fmt.Errorf("write CDI spec to %s: %w", dir, err)
	}
	return nil
}
