package discover

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/numalet/numalet/topology"
)

// Host reads the machine whose /sys and /proc are below root: "/" (or "") for this machine, a
// mount point of the host's file systems in a container, or an unpacked snapshot.
func Host(root string) (*topology.Machine, error) {
	if root == "" {
		root = "/"
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	defer dir.Close()
	spec, err := tree{dir.FS()}.spec()
	if err != nil {
		return nil, fmt.Errorf("read machine below %s: %w", root, err)
	}
	namePCI(spec.PCI, root)
	m, err := topology.NewMachine(spec)
	if err != nil {
		return nil, fmt.Errorf("read machine below %s: %w", root, err)
	}
	return m, nil
}

func (t tree) spec() (spec topology.Spec, err error) {
	if _, err := fs.Stat(t.fsys, cpuDir); err != nil {
		return topology.Spec{}, fmt.Errorf("%w; a machine needs at least %s and proc/meminfo "+
			"(capture one with: numalet topology snapshot -o FILE)", err, cpuDir)
	}
	var nodeOf map[int]topology.NodeID
	if spec.Nodes, nodeOf, err = t.nodes(); err != nil {
		return topology.Spec{}, err
	}
	if spec.CPUs, err = t.cpus(nodeOf); err != nil {
		return topology.Spec{}, err
	}
	if spec.PCI, err = t.pci(spec.Nodes); err != nil {
		return topology.Spec{}, err
	}
	spec.Name = t.cpuModel()
	return spec, nil
}

// cpuModel is what /proc/cpuinfo calls the first CPU, "" when it says nothing.
func (t tree) cpuModel() string {
	text, err := t.text("proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.ToValidUTF8(strings.TrimSpace(value), "?")
		}
	}
	return ""
}
