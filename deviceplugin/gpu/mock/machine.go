// Package mock simulates GPU machines: a driver for package gpu that answers as a machine described
// as data would, and that obeys orders such as a lost GPU or an XID. The built-in machines have the
// GPUs, PCI addresses, NUMA nodes, NVLinks and MIG profiles of the machines in their names; a file
// describes any other.
package mock

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/internal/strictyaml"
)

//go:embed machines/*.yaml
var builtIn embed.FS

// maxFile bounds a description in bytes.
const maxFile = 1 << 20

// maxGPUs bounds the GPUs of a machine, maxSlices the memory slices of a GPU.
const (
	maxGPUs   = 64
	maxSlices = 16
)

// Machine describes a machine.
type Machine struct {
	// Name is for people.
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// CUDA is the version that the driver supports.
	CUDA   string `json:"cuda,omitempty"`
	Model  Model  `json:"model"`
	NVLink NVLink `json:"nvlink,omitzero"`
	GPUs   []GPU  `json:"gpus"`
	Host   Host   `json:"host"`
}

// Model describes all GPUs of a machine.
type Model struct {
	Name string `json:"name"`
	// Device is the PCI device id, "0x2330".
	Device string `json:"device"`
	// NVML says Brand, Architecture, Compute capability and Memory of it.
	Brand        string `json:"brand,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Compute      string `json:"compute,omitempty"`
	Memory       string `json:"memory,omitempty"`
	// Profiles lists the MIG profiles; empty if the GPU cannot be divided.
	Profiles []Profile `json:"profiles,omitempty"`
	// Slices is the number of memory slices that MIG devices share.
	Slices int `json:"slices,omitempty"`
}

// Profile describes one size of MIG devices.
type Profile struct {
	Name string `json:"name"`
	// Slices is the number of memory slices of one device.
	Slices int `json:"slices"`
	// Most is the largest number of them on one GPU.
	Most int `json:"most"`
}

// NVLink describes the NVLinks; zero Links: there are none.
type NVLink struct {
	// Links is the number per GPU, GBps the bandwidth of each, one way.
	Links int `json:"links"`
	GBps  int `json:"gbps"`
	// Pairs gives the links between two GPUs, "0-3": 2. Without pairs, all links of each GPU go to
	// switches that join all GPUs.
	Pairs map[string]int `json:"pairs,omitempty"`
}

// GPU locates one GPU.
type GPU struct {
	Bus string `json:"bus"`
	// At is its path from the root, "node/bridge" and then a number for each switch: "0/1/0/2". The
	// longer the common beginning of two paths, the closer the GPUs.
	At string `json:"at"`
}

// Host describes the machine around the GPUs.
type Host struct {
	Sockets        int    `json:"sockets"`
	NodesPerSocket int    `json:"nodesPerSocket"`
	CoresPerNode   int    `json:"coresPerNode"`
	ThreadsPerCore int    `json:"threadsPerCore"`
	MemoryPerNode  string `json:"memoryPerNode"`
}

// Names lists the built-in machines.
func Names() (names []string) {
	entries, err := builtIn.ReadDir("machines")
	if err != nil {
		panic(err) // compiled in
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Open returns the built-in machine of that name, or the one that the file describes.
func Open(name string) (*Machine, error) {
	raw, err := read(name)
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	if err := strictyaml.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	return m, nil
}

func read(name string) ([]byte, error) {
	if slices.Contains(Names(), name) {
		return builtIn.ReadFile(path.Join("machines", name+".yaml"))
	}
	raw, err := files.Read(name, maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no machine %q: name a file that describes one, or one "+
			"of %s",
			name, strings.Join(Names(), ", "))
	}
	return raw, err
}

func (m *Machine) validate() error {
	var errs []error
	if n := len(m.GPUs); n == 0 || n > maxGPUs {
		errs = append(errs, fmt.Errorf("gpus: there are %d, want 1 to %d", n, maxGPUs))
	}
	for n, g := range m.GPUs {
		if _, err := g.place(); err != nil {
			errs = append(errs, fmt.Errorf("gpus[%d]: %w", n, err))
		}
	}
	for pair, links := range m.NVLink.Pairs {
		if _, _, err := m.pair(pair); err != nil || links <= 0 || links > m.NVLink.Links {
			errs = append(errs, fmt.Errorf("nvlink.pairs[%s]: %d: want two GPUs, like 0-3, and "+
				"1 to %d links", pair, links, m.NVLink.Links))
		}
	}
	if m.Model.Memory != "" {
		if _, err := quantity.Parse(m.Model.Memory); err != nil {
			errs = append(errs, fmt.Errorf("model.memory %q: %w", m.Model.Memory, err))
		}
	}
	if m.Model.Slices > maxSlices {
		errs = append(errs, fmt.Errorf("model.slices is %d, want %d at most", m.Model.Slices, maxSlices))
	}
	for _, p := range m.Model.Profiles {
		if p.Slices <= 0 || p.Slices > m.Model.Slices || p.Most <= 0 ||
			p.Slices*p.Most > m.Model.Slices {
			errs = append(errs, fmt.Errorf("model.profiles: %s takes %d of %d slices, at most %d "+
				"times", p.Name, p.Slices, m.Model.Slices, p.Most))
		}
	}
	if h := m.Host; min(h.Sockets, h.NodesPerSocket, h.CoresPerNode, h.ThreadsPerCore) <= 0 ||
		h.Sockets*h.NodesPerSocket*h.CoresPerNode*h.ThreadsPerCore > 1<<16 {
		errs = append(errs, errors.New("host: give sockets, nodesPerSocket, coresPerNode and "+
			"threadsPerCore, 65536 CPUs at most"))
	}
	return errors.Join(errs...)
}

// place returns the GPU's path, the NUMA node first.
func (g GPU) place() ([]int, error) {
	var way []int
	for _, step := range strings.Split(g.At, "/") {
		n, err := strconv.Atoi(step)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("at %q: want node/bridge or node/bridge/switch, as numbers",
				g.At)
		}
		way = append(way, n)
	}
	if len(way) < 2 {
		return nil, fmt.Errorf("at %q: the host bridge is missing", g.At)
	}
	return way, nil
}

// pair returns the GPUs that a key of pairs names.
func (m *Machine) pair(key string) (i, j int, err error) {
	from, to, _ := strings.Cut(key, "-")
	i, err = strconv.Atoi(from)
	if err == nil {
		j, err = strconv.Atoi(to)
	}
	if err == nil && (min(i, j) < 0 || max(i, j) >= len(m.GPUs) || i == j) {
		err = fmt.Errorf("%s: there are %d GPUs", key, len(m.GPUs))
	}
	return i, j, err
}
