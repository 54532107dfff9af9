package deviceplugin

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// lister reads the messages of one ListAndWatch stream. Each message repeats the whole list, so it
// is compared, device by device, with what the one before said, in whatever order, and only what
// differs is decoded: a change of one device's health costs a comparison and one copy of the
// pointers, another order a comparison.
type lister struct {
	machine topology.NodeSet
	current list
	// raw is a message that says what current does; empty when there is none at hand.
	raw string
	// last is current as the last message encoded it; nil when it held more than plain devices,
	// each once.
	last *encodedList
	// nodes are decoded topologies by their encoding: there are few different ones.
	nodes map[string]nodeList
}

type nodeList struct {
	set topology.NodeSet
	bad []int64
}

// mostTopologies bounds lister.nodes.
const mostTopologies = 4096

func newLister(machine topology.NodeSet) *lister {
	return &lister{machine: machine, nodes: map[string]nodeList{}}
}

// read takes the next message, encoded. changed is false when it says what the last one said. msg
// is not kept.
func (l *lister) read(msg []byte) (now list, changed bool, err error) {
	if l.raw != "" && string(msg) == l.raw {
		return l.current, false, nil
	}
	before := l.current
	if !l.patch(msg) {
		if err := l.rebuild(string(msg)); err != nil {
			return before, false, err
		}
	}
	return l.current, !l.current.says(before), nil
}

// patch makes the current list anew from what is new in msg. It returns false, and has left the
// list as it was, when that is too much, or changes what is wrong with the list.
func (l *lister) patch(msg []byte) bool {
	if l.last == nil {
		return false
	}
	differ, few := l.last.compare(msg)
	if !few {
		return false
	}
	if differ.len() == 0 {
		return true
	}
	changed, ok := l.decodeChanged(differ.changed)
	if !ok {
		return false
	}
	added, ok := l.decodeAdded(differ)
	if !ok {
		return false
	}
	devices, healthy := slices.Clone(l.current.devices), l.current.healthy
	for i, d := range differ.changed {
		healthy += count(changed[i].Healthy) - count(devices[d.place].Healthy)
		devices[d.place] = changed[i]
		l.last.entries[d.place] = d.entry
	}
	for _, place := range differ.gone {
		healthy -= count(devices[place].Healthy)
	}
	for _, a := range added {
		healthy += count(a.device.Healthy)
	}
	l.last.devices = devices
	if len(differ.gone)+len(added) > 0 {
		l.last = l.last.with(differ.gone, added)
	}
	l.current = list{
		devices: l.last.devices, healthy: healthy, defects: l.current.defects,
	}
	l.raw = ""
	return true
}

// decodeChanged decodes entries of devices that are in the list; not ok when there is more or less
// wrong with them than before.
func (l *lister) decodeChanged(changed []difference) (out []*Device, ok bool) {
	for _, d := range changed {
		var was, is defects
		l.decode(l.last.entries[d.place], &was)
		device, plain := l.decode(d.entry, &is)
		if !plain || was != is {
			return nil, false
		}
		out = append(out, &device)
	}
	return out, true
}

// decodeAdded decodes the entries of devices that are not in the list, in natural order; not ok
// when anything is wrong with them, or with devices that have gone.
func (l *lister) decodeAdded(differ differences) (out []encodedDevice, ok bool) {
	var found defects
	for _, place := range differ.gone {
		l.decode(l.last.entries[place], &found)
	}
	for _, entry := range differ.added {
		device, plain := l.decode(entry, &found)
		if !plain {
			return nil, false
		}
		out = append(out, encodedDevice{&device, entry})
	}
	slices.SortFunc(out, func(a, b encodedDevice) int {
		return CompareIDs(a.device.ID, b.device.ID)
	})
	for i := 1; i < len(out); i++ {
		if out[i-1].device.ID == out[i].device.ID {
			return nil, false
		}
	}
	return out, found == (defects{})
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// rebuild reads the whole message. Ids share its memory.
func (l *lister) rebuild(msg string) error {
	var entries []string
	if l.last != nil {
		entries = make([]string, 0, len(l.last.entries))
	}
	plain := split(msg, func(entry string) bool {
		entries = append(entries, entry)
		return true
	})
	block := make([]Device, len(entries))
	devices := make([]*Device, 0, len(entries))
	var found defects
	for i := 0; plain && i < len(entries); i++ {
		if block[i], plain = l.decode(entries[i], &found); plain && block[i].ID != "" {
			devices = append(devices, &block[i])
		}
	}
	if !plain {
		decoded := &v1beta1.ListAndWatchResponse{}
		if err := proto.Unmarshal([]byte(msg), decoded); err != nil {
			return fmt.Errorf("decode its list of devices: %w", err)
		}
		l.current, l.raw, l.last = listOf(decoded, l.machine), msg, nil
		return nil
	}
	now, order := arrange(devices, found)
	l.current, l.raw, l.last = now, msg, nil
	if len(now.devices) == len(entries) {
		l.last = newEncodedList(now.devices, entries, order)
	}
	return nil
}

// decode reads one device. Without a usable id it has none and is counted in found; plain is false
// for what only the protobuf library can tell the meaning of.
func (l *lister) decode(entry string, found *defects) (d Device, plain bool) {
	parts, plain := fieldsOf(entry)
	if !plain {
		return d, false
	}
	nodes, ok := l.nodesOf(parts.topology)
	if !ok {
		return d, false
	}
	if !found.accepts(parts.id) {
		return Device{}, true
	}
	found.missing(nodes.bad)
	return Device{
		ID: parts.id, Healthy: found.healthy(parts.health), Nodes: nodes.set,
		NoNodes: found.noNodes(parts.placed && nodes.set.IsEmpty() && len(nodes.bad) == 0),
	}, true
}

// nodesOf decodes a topology; ok is false when it cannot be.
func (l *lister) nodesOf(encoded string) (out nodeList, ok bool) {
	if out, ok = l.nodes[encoded]; ok {
		return out, true
	}
	info := &v1beta1.TopologyInfo{}
	if err := proto.Unmarshal([]byte(encoded), info); err != nil {
		return out, false
	}
	out.set, out.bad = nodesOf(info, l.machine)
	if len(l.nodes) >= mostTopologies {
		clear(l.nodes)
	}
	l.nodes[encoded] = out
	return out, true
}
