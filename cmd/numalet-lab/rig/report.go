package rig

import (
	"time"

	"github.com/numalet/numalet/topology"
)

// Report is the result of a comparison: the same stream under each policy.
type Report struct {
	// Version is the program's version, Command a command line that gives the same report.
	Version string `json:"version,omitempty"`
	Command string `json:"command,omitempty"`
	// Interrupted is set if not all pods arrived; their number then differs between policies.
	Interrupted bool        `json:"interrupted,omitempty"`
	Machine     MachineInfo `json:"machine"`
	Workload    Workload    `json:"workload"`
	Policies    []Outcome   `json:"policies"`
}

// MachineInfo describes the machine.
type MachineInfo struct {
	// From names the source of the machine: a file, "fixture:NAME", or "this host".
	From    string `json:"from"`
	Name    string `json:"name"`
	Sockets int    `json:"sockets"`
	Cores   int    `json:"cores"`
	CPUs    int    `json:"cpus"`
	// ReservedCPUs are never given out.
	ReservedCPUs string `json:"reservedCPUs"`
	// IsolatedCPUs are given only to pods that ask for them.
	IsolatedCPUs string       `json:"isolatedCPUs,omitempty"`
	MemoryBytes  uint64       `json:"memoryBytes"`
	Devices      []DeviceInfo `json:"devices"`
	Nodes        []NodeInfo   `json:"nodes"`
}

// DeviceInfo describes one device resource.
type DeviceInfo struct {
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}

// NodeInfo describes one NUMA node. Distances are to the nodes in the order of the list.
type NodeInfo struct {
	ID          int            `json:"id"`
	CPUs        string         `json:"cpus"`
	MemoryBytes uint64         `json:"memoryBytes"`
	Devices     map[string]int `json:"devices,omitempty"`
	Distances   []int          `json:"distances"`
}

// Workload describes the pods.
type Workload struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	// Seed is absent for a trace.
	Seed *uint64 `json:"seed,omitempty"`
	Pods int     `json:"pods"`
	// Span is the virtual time up to the last arrival, Wait how long pods wait for a place.
	Span float64 `json:"spanSeconds"`
	Wait float64 `json:"waitSeconds"`
}

// Describe returns the description of the site for a report.
func (s *Site) Describe(from string) MachineInfo {
	m := s.Machine
	info := MachineInfo{
		From: from, Name: m.Name(), Sockets: len(m.Sockets()), Cores: len(m.Cores()),
		CPUs: m.Online().Size(), ReservedCPUs: s.ReservedCPUs.String(),
		IsolatedCPUs: s.IsolatedCPUs.String(), MemoryBytes: m.MemoryBytes(),
	}
	for _, name := range s.Resources() {
		info.Devices = append(info.Devices,
			DeviceInfo{name, len(s.Inventory.Resources[name].Devices)})
	}
	for _, n := range m.Nodes() {
		info.Nodes = append(info.Nodes, s.describeNode(n))
	}
	return info
}

func (s *Site) describeNode(n topology.Node) NodeInfo {
	info := NodeInfo{
		ID: int(n.ID), CPUs: s.Machine.CPUsOfNode(n.ID).String(), MemoryBytes: n.MemoryBytes,
		Devices: map[string]int{},
	}
	for _, name := range s.Resources() {
		for _, d := range s.Inventory.Resources[name].Devices {
			if d.Nodes.Has(n.ID) {
				info.Devices[name]++
			}
		}
	}
	for _, other := range s.Machine.Nodes() {
		info.Distances = append(info.Distances, s.Machine.Distance(n.ID, other.ID))
	}
	return info
}

// Describe returns the description of the stream; name and about come from its mix or file.
func (s Stream) Describe(name, about string, wait time.Duration) Workload {
	return Workload{
		Name: name, About: about, Pods: len(s.Arrivals), Span: s.end().Seconds(),
		Wait: wait.Seconds(),
	}
}
