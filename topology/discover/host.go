package discover

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/numalet/numalet/topology"
)

// Host reads the machine whose /sys and /proc are below root: "/" (or "") for this machine, a
// mount point of the host's file systems in a container, or an unpacked snapshot.
func Host(root string) (*topology.Machine, error) {
	root = cmp.Or(root, "/")
	return read(root, "", func(t tree) (topology.Spec, error) {
		spec, err := t.spec()
		namePCI(spec.PCI, root)
		return spec, err
	})
}

// Refresh rereads what may change on a running machine: nodes with their memory and huge pages, and
// CPUs. It returns m itself if nothing changed. It keeps m's PCI functions, and the places of CPUs
// that have gone offline.
func Refresh(root string, m *topology.Machine) (*topology.Machine, error) {
	before := m.Spec()
	after, err := read(cmp.Or(root, "/"), " again", func(t tree) (topology.Spec, error) {
		return t.again(before)
	})
	if err == nil && reflect.DeepEqual(after.Spec(), before) {
		return m, nil
	}
	return after, err
}

// read makes a machine of what find returns below root; again is "", or " again" for error texts.
func read(root, again string, find func(tree) (topology.Spec, error)) (
	m *topology.Machine, err error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("read machine%s: %w", again, err)
	}
	defer dir.Close()
	spec, err := find(tree{attributes{dir.FS()}})
	if err == nil {
		m, err = topology.NewMachine(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("read machine below %s%s: %w", root, again, err)
	}
	return m, nil
}

// tree reads a machine.
type tree struct{ attributes }

func (t tree) spec() (spec topology.Spec, err error) {
	if _, err := fs.Stat(t.fsys, cpuDir); err != nil {
		return topology.Spec{}, fmt.Errorf("%w; a machine needs at least %s and proc/meminfo "+
			"(capture one with: numalet topology snapshot -o FILE)", err, cpuDir)
	}
	if err := t.running(&spec); err != nil {
		return topology.Spec{}, err
	}
	if spec.PCI, err = t.pci(spec.Nodes); err != nil {
		return topology.Spec{}, err
	}
	spec.Name = t.cpuModel()
	return spec, nil
}

// running reads what may change on a running machine.
func (t tree) running(spec *topology.Spec) (err error) {
	var nodeOf map[int]topology.NodeID
	if spec.Nodes, nodeOf, err = t.nodes(); err != nil {
		return err
	}
	spec.CPUs, err = t.cpus(nodeOf)
	return err
}

// again returns the present state of the machine before.
func (t tree) again(before topology.Spec) (topology.Spec, error) {
	now := before
	if err := t.running(&now); err != nil {
		return topology.Spec{}, err
	}
	rememberPlaces(now.CPUs, before.CPUs)
	return now, nil
}

// cpuModel returns the model name of the first CPU in /proc/cpuinfo, "" if there is none.
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
