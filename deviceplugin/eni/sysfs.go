package eni

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
)

// sysfs holds the paths of sysfs and of device nodes.
type sysfs struct{ root, dev string }

// pciAddress matches the name of a function in sysfs.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pciID matches the id of an interface of a PCI function.
var pciID = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](-[0-9]+)?$`)

// text returns the content of a file, "" without one.
func (s sysfs) text(elem ...string) string {
	text, err := files.Read(filepath.Join(elem...), 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// number returns the number in a file, 0 without one.
func (s sysfs) number(elem ...string) int {
	n, _ := strconv.Atoi(s.text(elem...)) // an error gives 0
	return n
}

// hardware returns the device beneath an interface of this network namespace.
func (s sysfs) hardware(name string) Hardware {
	at, err := filepath.EvalSymlinks(filepath.Join(s.root, "class/net", name, "device"))
	if err != nil {
		return Hardware{}
	}
	h := Hardware{Port: s.number(s.root, "class/net", name, "dev_port"),
		Speed: max(0, s.number(s.root, "class/net", name, "speed"))} // -1 is unknown
	for top := filepath.Clean(s.root); len(at) > len(top); at = filepath.Dir(at) {
		if driver, err := os.Readlink(filepath.Join(at, "driver")); err == nil {
			h.Drivers = append(h.Drivers, filepath.Base(driver))
		}
		if pciAddress.MatchString(filepath.Base(at)) {
			s.function(at, &h)
			return h
		}
	}
	return Hardware{Drivers: h.Drivers, Speed: h.Speed} // on another bus
}

// function reads a PCI function.
func (s sysfs) function(at string, h *Hardware) {
	h.PCI = filepath.Base(at)
	if _, way, found := strings.Cut(at, "/devices/"); found && topology.ValidPCIPath(way) {
		h.Root = topology.PCIDevice{Path: way}.Root()
	}
	h.Vendor = strings.TrimPrefix(s.text(at, "vendor"), "0x")
	h.Device = strings.TrimPrefix(s.text(at, "device"), "0x")
	if node, err := strconv.Atoi(s.text(at, "numa_node")); err == nil && node >= 0 {
		h.Node = &node
	}
	if physical, err := os.Readlink(filepath.Join(at, "physfn")); err == nil {
		h.Physical = filepath.Base(physical)
	}
	h.Virtual = s.number(at, "sriov_numvfs")
	h.RDMA = s.names(at, "infiniband")
}

// rdma reports whether there are RDMA devices. Asking netlink for them would load kernel modules.
func (s sysfs) rdma() bool { return len(s.names(s.root, "class/infiniband")) > 0 }

// nodes returns the device nodes of RDMA devices: verbs, management, and the connection manager,
// which all share.
func (s sysfs) nodes(devices []string) (nodes []string) {
	for _, kind := range []string{"infiniband_verbs", "infiniband_mad"} {
		for _, node := range s.names(s.root, "class", kind) {
			if slices.Contains(devices, s.text(s.root, "class", kind, node, "ibdev")) {
				nodes = append(nodes, filepath.Join(s.dev, "infiniband", node))
			}
		}
	}
	if cm := filepath.Join(s.dev, "infiniband/rdma_cm"); len(nodes) > 0 && exists(cm) {
		nodes = append(nodes, cm)
	}
	return nodes
}

// names returns the entries of a folder, sorted.
func (s sysfs) names(elem ...string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(elem...))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// present reports whether a PCI function exists, wherever its interface may be.
func (s sysfs) present(address string) bool {
	return exists(filepath.Join(s.root, "bus/pci/devices", address))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// identify makes interfaces of links.
func (s sysfs) identify(links []Link) (all []Interface) {
	for _, l := range links {
		i := Interface{ID: l.State.Name, Link: l}
		if l.Kind == "" {
			i.Hardware = s.hardware(l.State.Name)
		}
		for _, device := range l.RDMA {
			if !slices.Contains(i.Hardware.RDMA, device) {
				i.Hardware.RDMA = append(i.Hardware.RDMA, device)
			}
		}
		if len(i.Hardware.RDMA) > 0 {
			i.Hardware.Nodes = s.nodes(i.Hardware.RDMA)
		}
		i.ID = cmp.Or(i.Hardware.PCI, i.ID)
		if i.Hardware.Port > 0 {
			i.ID += "-" + strconv.Itoa(i.Hardware.Port)
		}
		all = append(all, i)
	}
	return all
}
