package recall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// Device is one device as its plugin lists it.
type Device struct {
	ID      string
	Healthy bool
	// Cordoned: an administrator withholds it from new containers. A container that holds it keeps
	// it. Package cordon remembers that, this one does not.
	Cordoned bool
	// NoNodes: the plugin gives the device a topology without any node. The kubelet hands out such
	// a device but does not list it as allocatable in podresources.
	NoNodes bool
	// Nodes holds the named NUMA nodes that the machine has; it may be empty.
	Nodes topology.NodeSet
}

// Offered reports whether a container that does not hold the device may get it.
func (d *Device) Offered() bool { return d.Healthy && !d.Cordoned }

// Resource is the last state of a resource's plugin.
type Resource struct {
	Name string `json:"resource"`
	// Gone is when the plugin was last there; zero: it is there.
	Gone time.Time `json:"gone,omitzero"`
	// PreStart: it wants PreStartContainer before each start of a container.
	PreStart bool `json:"preStart,omitempty"`
	// Devices are shared with whoever remembers them: never write to them.
	Devices []*Device `json:"-"`
	// Addresses has the PCI addresses of devices by id, as far as the plugin tells.
	Addresses map[string]string `json:"-"`
}

// says reports whether both have the same content. A list that did not change is the same slice:
// lists are long.
func (r Resource) says(o Resource) bool {
	return r.Name == o.Name && r.Gone.Equal(o.Gone) && r.PreStart == o.PreStart &&
		len(r.Devices) == len(o.Devices) && (len(r.Devices) == 0 || &r.Devices[0] == &o.Devices[0] ||
		slices.EqualFunc(r.Devices, o.Devices, func(a, b *Device) bool { return a == b || *a == *b })) &&
		maps.Equal(r.Addresses, o.Addresses)
}

// FileName is the name of the book's file in the agent's root.
const FileName = "numalet_device_lists"

// version is written in the file. A file with another one is not used.
const version = "v1"

// maxFile bounds what is read and written.
const maxFile = 64 << 20

// file is the book on the disk. The time of its last change is when its owner was last there.
type file[T any] struct {
	Version   string `json:"version"`
	Resources []T    `json:"resources"`
}

// entry is a resource in the file.
type entry struct {
	Resource
	Sets []set `json:"sets,omitempty"`
}

// set are devices that are alike.
type set struct {
	Healthy bool `json:"healthy,omitempty"`
	// NoNodes: the devices have a topology that names no node.
	NoNodes bool     `json:"noNodes,omitempty"`
	Nodes   nodes    `json:"nodes,omitzero"`
	IDs     []string `json:"ids"`
	// PCI are the devices' addresses; empty, or as many as IDs.
	PCI []string `json:"pci,omitempty"`
}

// nodes are NUMA nodes; in the file a list such as 0-1.
type nodes struct{ topology.NodeSet }

// IsZero serves omitzero.
func (n nodes) IsZero() bool { return n.IsEmpty() }

// MarshalText implements encoding.TextMarshaler.
func (n nodes) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *nodes) UnmarshalText(text []byte) (err error) {
	n.NodeSet, err = topology.ParseNodeSet(string(text))
	return err
}

// entryOf groups the devices that are alike.
func entryOf(r Resource) entry {
	out, places := entry{Resource: r}, map[Device]int{}
	for _, d := range r.Devices {
		kind := Device{Healthy: d.Healthy, NoNodes: d.NoNodes, Nodes: d.Nodes}
		at, known := places[kind]
		if !known {
			at = len(out.Sets)
			places[kind] = at
			out.Sets = append(out.Sets, set{Healthy: d.Healthy, NoNodes: d.NoNodes, Nodes: nodes{d.Nodes}})
		}
		s := &out.Sets[at]
		s.IDs = append(s.IDs, d.ID)
		if len(r.Addresses) > 0 {
			s.PCI = append(s.PCI, r.Addresses[d.ID])
		}
	}
	return out
}

// resource returns the entry's resource with its devices, set by set; of their nodes it keeps those
// that the machine has.
func (e entry) resource(machine topology.NodeSet) Resource {
	r := e.Resource
	for _, s := range e.Sets {
		for i, id := range s.IDs {
			if i < len(s.PCI) && s.PCI[i] != "" {
				if r.Addresses == nil {
					r.Addresses = map[string]string{}
				}
				r.Addresses[id] = s.PCI[i]
			}
			r.Devices = append(r.Devices, &Device{
				ID: id, Healthy: s.Healthy, NoNodes: s.NoNodes, Nodes: s.Nodes.Intersect(machine),
			})
		}
	}
	return r
}

// parse is strict: a list that was read in part might have more healthy devices than there are.
func parse(raw []byte) ([]entry, error) {
	var in file[entry]
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, fmt.Errorf("it is not JSON of its kind: %w", err)
	}
	if in.Version != version {
		return nil, fmt.Errorf("it is of version %s, and this agent reads %s",
			oneline.Of(in.Version), version)
	}
	seen := map[string]bool{}
	for _, e := range in.Resources {
		if e.Name == "" || seen[e.Name] {
			return nil, fmt.Errorf("resource %q is in it twice, or has no name", oneline.Of(e.Name))
		}
		seen[e.Name] = true
	}
	return in.Resources, nil
}

// encode returns the file's content. Of resources that have too many devices for it the devices are
// not remembered: the resource then has none while its plugin is away.
func encode(all []Resource) ([]byte, error) {
	fit, err := fitting(all, maxFile-1024)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(file[json.RawMessage]{version, fit})
	return append(raw, '\n'), err
}

// fitting encodes resources into so many bytes: the longest go without their devices.
func fitting(all []Resource, room int) ([]json.RawMessage, error) {
	out, short := make([]json.RawMessage, len(all)), make([]json.RawMessage, len(all))
	order := make([]int, len(all)) // the shortest first
	for i, r := range all {
		var err, shortErr error
		out[i], err = json.Marshal(entryOf(r))
		short[i], shortErr = json.Marshal(r)
		if err := errors.Join(err, shortErr); err != nil {
			return nil, err
		}
		order[i], room = i, room-len(short[i])-1
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(out[a]) - len(out[b]) })
	for _, i := range order {
		if room -= len(out[i]) - len(short[i]); room < 0 {
			out[i] = short[i]
		}
	}
	return out, nil
}
