package devicemanager

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// lister reads the messages of one ListAndWatch stream. Each message repeats the whole list, so
// lister compares it with the one before, device by device and in whatever order, and decodes only
// what differs: a change of one device's health costs a comparison and a copy of the pointers, a
// new order only a comparison. To decode each message with the library, as the kubelet does, would be
// less code, and some 60 times slower for 250,000 devices (BenchmarkLibrary, BenchmarkHealthChange).
type lister struct {
	machine topology.NodeSet
	current list
	// raw is a message with the content of current; empty if none is at hand.
	raw string
	// last is current as the last message encoded it; nil if that message had anything but plain
	// devices, each once.
	last *encodedList
	// nodes caches decoded topologies by their encoding; few differ.
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

// read takes the next encoded message; it does not keep msg. changed is false if the content is
// that of the last message.
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

// patch applies the changes in msg to the current list. It returns false, with the list as it was,
// if there are too many or if they change the list's defects.
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

// decodeChanged decodes changed entries of listed devices; ok is false if their defects changed.
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

// decodeAdded decodes the entries of new devices, in natural order; ok is false if these or the
// gone devices have any defect.
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

// rebuild reads the whole message. The ids share its memory.
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

// decode reads one device. A device without a usable id is counted in found and returned without
// id. plain is false if only the protobuf library can interpret the entry.
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

// nodesOf decodes a topology; ok is false if that fails.
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
