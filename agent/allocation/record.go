package allocation

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// PodRecord is a pod as the state file and annotations of sandboxes have it, in JSON.
type PodRecord struct {
	UID        types.UID         `json:"uid"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	BootID     string            `json:"bootID"`
	Containers []ContainerRecord `json:"containers"`
}

// ContainerRecord is a container as the state file and its annotation have it.
type ContainerRecord struct {
	Name    string         `json:"name"`
	CPUs    string         `json:"cpus,omitempty"`
	Memory  []BlockRecord  `json:"memory,omitempty"`
	Devices []DeviceRecord `json:"devices,omitempty"`
}

// BlockRecord is a block of memory.
type BlockRecord struct {
	Nodes    string          `json:"nodes"`
	Resource v1.ResourceName `json:"resource"`
	Bytes    uint64          `json:"bytes"`
}

// DeviceRecord is the devices of one resource.
type DeviceRecord struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
	Nodes    []string `json:"nodes,omitempty"`
	Answer   []byte   `json:"answer"` // null: none yet; "" is an empty answer
}

// Record returns the pod as it is written; the same pod makes the same record.
func (p Pod) Record() PodRecord {
	out := PodRecord{UID: p.UID, Namespace: p.Namespace, Name: p.Name, BootID: p.BootID}
	for name, c := range p.Containers {
		if c.IsEmpty() {
			continue
		}
		out.Containers = append(out.Containers, c.Record(name))
	}
	slices.SortFunc(out.Containers, func(a, b ContainerRecord) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// WithoutAnswers returns the containers with their devices as intent: Allocate has to be called.
func WithoutAnswers(containers map[string]Container) map[string]Container {
	out := make(map[string]Container, len(containers))
	for name, c := range containers {
		c.Devices = slices.Clone(c.Devices)
		for i := range c.Devices {
			c.Devices[i].Answer = nil
		}
		out[name] = c
	}
	return out
}

// Record returns the container as it is written.
func (c Container) Record(name string) ContainerRecord {
	fc := ContainerRecord{Name: name, CPUs: c.CPUs.String()}
	for _, b := range c.Memory {
		fc.Memory = append(fc.Memory, BlockRecord{b.Nodes.String(), b.Resource, b.Size})
	}
	for _, d := range c.Devices {
		fd := DeviceRecord{Resource: d.Resource, IDs: d.IDs, Answer: d.Answer}
		for _, nodes := range d.Nodes {
			fd.Nodes = append(fd.Nodes, nodes.String())
		}
		fc.Devices = append(fc.Devices, fd)
	}
	return fc
}

// Pod reads the record. It returns an error for CPUs or nodes that are no lists.
func (r PodRecord) Pod() (Pod, error) {
	p := Pod{
		UID: r.UID, Namespace: r.Namespace, Name: r.Name, BootID: r.BootID,
		Containers: make(map[string]Container, len(r.Containers)),
	}
	for _, fc := range r.Containers {
		c, err := fc.Container()
		if err != nil {
			return Pod{}, fmt.Errorf("container %s: %w", fc.Name, err)
		}
		p.Containers[fc.Name] = c
	}
	return p, nil
}

// Container reads the record.
func (r ContainerRecord) Container() (Container, error) {
	cpus, err := topology.ParseCPUs(r.CPUs)
	if err != nil {
		return Container{}, fmt.Errorf("cpus %q: %w", r.CPUs, err)
	}
	c := Container{CPUs: cpus}
	for _, b := range r.Memory {
		nodes, err := topology.ParseNodeSet(b.Nodes)
		if err != nil {
			return Container{}, fmt.Errorf("%s: %w", b.Resource, err)
		}
		c.Memory = append(c.Memory, memory.Block{Nodes: nodes, Resource: b.Resource, Size: b.Bytes})
	}
	for _, d := range r.Devices {
		held := DeviceSet{Resource: d.Resource, IDs: d.IDs, Answer: d.Answer}
		for _, text := range d.Nodes {
			nodes, err := topology.ParseNodeSet(text)
			if err != nil {
				return Container{}, fmt.Errorf("%s: %w", d.Resource, err)
			}
			held.Nodes = append(held.Nodes, nodes)
		}
		c.Devices = append(c.Devices, held)
	}
	return c, nil
}
