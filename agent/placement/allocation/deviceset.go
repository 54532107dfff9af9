package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Devices are the devices of device plugins that a container holds: one set per resource, ordered
// by resource name.
type Devices []DeviceSet

// DeviceSet holds the devices of one resource.
type DeviceSet struct {
	Resource string
	// IDs are in ascending order. Nodes are the NUMA nodes of each, as the plugin named them when the
	// device was chosen; it is empty, or as long as IDs.
	IDs   []string
	Nodes []topology.NodeSet
	// Addresses are the PCI addresses of each, as Nodes; "": unknown.
	Addresses []string
	// Answer is the plugin's ContainerAllocateResponse as protobuf; nil until Allocate was called.
	Answer []byte
}

var deviceKind = kind{
	name: "devices", since: 1, first: true, none: deviceCounts(nil), provide: newDevices,
	sum:       func(pods []Pod) total { return deviceIDsOf(pods) },
	needs:     func(pod *v1.Pod, c *v1.Container) bool { return len(podspec.DeviceRequests(pod, c)) > 0 },
	releases:  releasesDevices,
	releasing: func(o PendingRelease) total { return DeviceIDs{o.Resource: sets.New(o.IDs...)} },
	decode:    decodeDevices,
	size: func(pod *v1.Pod, _ topology.Rules) func(*v1.Container) (items, bytes uint64) {
		return func(c *v1.Container) (items, bytes uint64) {
			for _, r := range podspec.DeviceRequests(pod, c) {
				items += uint64(r.Count)
			}
			return items, 0
		}
	},
}

// deviceRecord is a DeviceSet as it is written.
type deviceRecord struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
	Nodes    []string `json:"nodes,omitempty"`
	PCI      []string `json:"pci,omitempty"`
	Answer   []byte   `json:"answer"` // null: none yet; "" is an empty answer
}

func decodeDevices(raw []byte) (Holding, error) {
	var records []deviceRecord
	if err := json.Unmarshal(raw, &records); err != nil {
		return nil, err
	}
	var out Devices
	for _, r := range records {
		set := DeviceSet{Resource: r.Resource, IDs: r.IDs, Addresses: r.PCI, Answer: r.Answer}
		for _, text := range r.Nodes {
			nodes, err := topology.ParseNodeSet(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Resource, err)
			}
			set.Nodes = append(set.Nodes, nodes)
		}
		out = append(out, set)
	}
	return out, nil
}

// MarshalJSON writes a list of sets.
func (d Devices) MarshalJSON() ([]byte, error) {
	out := make([]deviceRecord, len(d))
	for i, set := range d {
		out[i] = deviceRecord{Resource: set.Resource, IDs: set.IDs, PCI: set.Addresses,
			Answer: set.Answer}
		for _, nodes := range set.Nodes {
			out[i].Nodes = append(out[i].Nodes, nodes.String())
		}
	}
	return json.Marshal(out)
}

// Kind implements Holding.
func (Devices) Kind() string { return deviceKind.name }

func (d Devices) empty() bool { return len(d) == 0 }

func (d Devices) parts() (out []string) {
	for _, set := range d {
		out = append(out, set.Resource+" "+strings.Join(set.IDs[:min(len(set.IDs), 8)], ","))
	}
	return out
}

func (d Devices) ready() bool {
	return !slices.ContainsFunc(d, func(set DeviceSet) bool { return set.Answer == nil })
}

func (d Devices) intent() Holding { return d.With(func(set *DeviceSet) { set.Answer = nil }) }

// With returns a copy with each set changed.
func (d Devices) With(change func(*DeviceSet)) Devices {
	out := slices.Clone(d)
	for i := range out {
		change(&out[i])
	}
	return out
}

// Devices returns the container's devices.
func (c Container) Devices() Devices { return find(c, Devices(nil)) }

// device returns the container's set of one resource.
func (c Container) device(resource string) (DeviceSet, bool) {
	all := c.Devices()
	i, found := slices.BinarySearchFunc(all, resource, func(d DeviceSet, name string) int {
		return cmp.Compare(d.Resource, name)
	})
	if !found {
		return DeviceSet{}, false
	}
	return all[i], true
}

// NodesOf returns the NUMA nodes of the i-th device; empty: unknown, or none.
func (d DeviceSet) NodesOf(i int) topology.NodeSet {
	if i >= len(d.Nodes) {
		return topology.NodeSet{}
	}
	return d.Nodes[i]
}

// AddressOf returns the PCI address that the plugin named for the i-th device; "": unknown.
func (d DeviceSet) AddressOf(i int) string {
	if i >= len(d.Addresses) {
		return ""
	}
	return d.Addresses[i]
}

// NewDeviceSet returns these devices of the resource, without an answer.
func NewDeviceSet(r devicemanager.Resource, ids []string) DeviceSet {
	return DeviceSet{Resource: r.Name, IDs: ids, Nodes: nodesOf(r, ids), Addresses: addressesOf(r, ids)}
}

// addressesOf returns the PCI address of each device as the plugin names it; nil: it names none.
func addressesOf(r devicemanager.Resource, ids []string) []string {
	if len(r.Addresses) == 0 {
		return nil
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = r.Addresses[id]
	}
	return out
}

// nodesOf returns the NUMA nodes of each device; nil: no device has any.
func nodesOf(r devicemanager.Resource, ids []string) []topology.NodeSet {
	out, known := make([]topology.NodeSet, len(ids)), false
	for i, id := range ids {
		if d, found := r.Find(id); found {
			out[i] = d.Nodes
			known = known || !out[i].IsEmpty()
		}
	}
	if !known {
		return nil
	}
	return out
}

// DeviceIDs are the ids of devices that pods hold together, by resource.
type DeviceIDs map[string]sets.Set[string]

func deviceIDsOf(pods []Pod) DeviceIDs {
	out := DeviceIDs{}
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices() {
				if out[d.Resource] == nil {
					out[d.Resource] = sets.New[string]()
				}
				out[d.Resource].Insert(d.IDs...)
			}
		}
	}
	return out
}

// Kind implements total.
func (DeviceIDs) Kind() string { return deviceKind.name }

func (d DeviceIDs) empty() bool { return len(d) == 0 }

func (d DeviceIDs) equal(o Holdings) bool {
	return maps.EqualFunc(d, o.Devices(), sets.Set[string].Equal)
}

func (d DeviceIDs) overlaps(o Holdings) bool {
	others := o.Devices()
	for resource, ids := range d {
		for id := range others[resource] {
			if ids.Has(id) {
				return true
			}
		}
	}
	return false
}

// Devices returns the ids of devices, by resource.
func (t Holdings) Devices() DeviceIDs { return find(t, DeviceIDs(nil)) }

// WithoutDevices returns Holdings without these devices.
func (t Holdings) WithoutDevices(ids map[string]sets.Set[string]) Holdings {
	left := maps.Clone(t.Devices())
	for resource, gone := range ids {
		if left[resource] = left[resource].Difference(gone); left[resource].Len() == 0 {
			delete(left, resource)
		}
	}
	return t.With(left)
}

// deviceCounts is the number of pods that hold a device, by resource and id.
type deviceCounts map[string]shards[string, int]

func (n deviceCounts) change(had, has Holdings) counts {
	out := make(deviceCounts, len(n)+1)
	maps.Copy(out, n)
	before, after := had.Devices(), has.Devices()
	for resource, ids := range after {
		for id := range ids.Difference(before[resource]) {
			pods, _ := out[resource].get(id)
			out[resource] = out[resource].with(id, pods+1)
		}
	}
	for resource, ids := range before {
		for id := range ids.Difference(after[resource]) {
			if pods, _ := out[resource].get(id); pods > 1 {
				out[resource] = out[resource].with(id, pods-1)
			} else {
				out[resource] = out[resource].without(id)
			}
		}
	}
	return out
}

func (n deviceCounts) taken(resources []string) total {
	out := DeviceIDs{}
	for _, resource := range resources {
		if ids := n[resource]; ids.size > 0 {
			out[resource] = make(sets.Set[string], ids.size)
			for id := range ids.all() {
				out[resource].Insert(id)
			}
		}
	}
	return out
}

func (n deviceCounts) lasting(lasting sum, own Holdings, resource string) (count int) {
	all, last := n[resource], find(lasting, deviceCounts(nil))[resource]
	for id := range own.Devices()[resource] {
		pods, _ := all.get(id)
		if lasting, _ := last.get(id); pods == lasting {
			count++
		}
	}
	return count
}

func (n deviceCounts) conflict(own Holdings) string {
	var out []string
	for _, resource := range slices.Sorted(maps.Keys(own.Devices())) {
		both := sets.New[string]()
		for id := range own.Devices()[resource] {
			if _, had := n[resource].get(id); had {
				both.Insert(id)
			}
		}
		if both.Len() > 0 {
			out = append(out, fmt.Sprintf("%s %v belong to another pod", resource, sets.List(both)))
		}
	}
	return strings.Join(out, ", ")
}
