package deviceplugin

import (
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// lister reads the messages of one ListAndWatch stream. Each message repeats the whole list, so it
// is compared, device by device, with the bytes of the one before, and only what differs is
// decoded: a change of one device's health costs a comparison and one copy of the pointers.
type lister struct {
	machine topology.NodeSet
	current list
	// entries are the encoded devices of the last message, in its order; nil when it held more
	// than plain devices. places are their positions in current; nil: the same ones.
	entries []string
	places  []int32
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
	differ, comparable := l.differences(msg)
	if comparable && len(differ) == 0 {
		return l.current, false, nil
	}
	before := l.current
	if !comparable || !l.patch(differ) {
		if err := l.rebuild(string(msg)); err != nil {
			return before, false, err
		}
	}
	return l.current, !l.current.says(before), nil
}

// difference is an entry that is not as it was.
type difference struct {
	at    int
	entry string
}

// differences finds what is new in msg; comparable is false when so much is that it has to be read
// anew.
func (l *lister) differences(msg []byte) (out []difference, comparable bool) {
	if l.entries == nil || l.current.defects != (defects{}) {
		return nil, false
	}
	n := 0
	plain := split(msg, func(entry []byte) bool {
		if n >= len(l.entries) {
			n++
			return false
		}
		if string(entry) != l.entries[n] {
			out = append(out, difference{n, string(entry)})
		}
		n++
		return len(out) <= len(l.entries)/8+1
	})
	return out, plain && n == len(l.entries) && len(out) <= len(l.entries)/8+1
}

// patch makes the current list anew from the differences. It returns false, and has done nothing,
// when ids differ or an entry has a defect.
func (l *lister) patch(differ []difference) bool {
	devices := slices.Clone(l.current.devices)
	healthy := l.current.healthy
	for _, d := range differ {
		var found defects
		device, plain := l.decode(d.entry, &found)
		place := d.at
		if l.places != nil {
			place = int(l.places[d.at])
		}
		if !plain || found != (defects{}) || device.ID != devices[place].ID {
			return false
		}
		healthy += count(device.Healthy) - count(devices[place].Healthy)
		devices[place] = &device
	}
	for _, d := range differ {
		l.entries[d.at] = d.entry
	}
	l.current = list{devices: devices, healthy: healthy}
	return true
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// rebuild reads the whole message. Ids share its memory.
func (l *lister) rebuild(msg string) error {
	entries := make([]string, 0, len(l.entries))
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
		l.current, l.entries, l.places = listOf(decoded, l.machine), nil, nil
		return nil
	}
	l.current, l.entries = newList(devices, found), entries
	l.places = placesOf(devices, l.current.devices)
	return nil
}

// placesOf is where each of the devices is in a list that has all of them; nil: in the same place,
// or the list lacks some.
func placesOf(devices, list []*Device) []int32 {
	if len(devices) != len(list) || slices.Equal(devices, list) {
		return nil
	}
	at := make(map[*Device]int32, len(list))
	for i, d := range list {
		at[d] = int32(i)
	}
	places := make([]int32, len(devices))
	for i, d := range devices {
		places[i] = at[d]
	}
	return places
}

// decode reads one device. Without a usable id it has none and is counted in found; plain is false
// for what only the protobuf library can tell the meaning of.
func (l *lister) decode(entry string, found *defects) (d Device, plain bool) {
	var health, topo string
	seen := false
	for len(entry) > 0 {
		tag := entry[0]
		value, rest, ok := field(entry[1:])
		switch {
		case !ok:
			return d, false
		case tag == tagID:
			d.ID = value
		case tag == tagHealth:
			health = value
		case tag == tagTopology && !seen:
			topo, seen = value, true
		default:
			return d, false
		}
		entry = rest
	}
	nodes, ok := l.nodesOf(topo)
	if !ok {
		return d, false
	}
	if !found.accepts(d.ID) {
		return Device{}, true
	}
	found.missing(nodes.bad)
	d.Healthy, d.Nodes = health == v1beta1.Healthy, nodes.set
	return d, true
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

// The first bytes of fields on the wire: number<<3 | 2, a length and that many bytes follow. Of
// ListAndWatchResponse: devices = 1; of Device: ID = 1, health = 2, topology = 3.
const (
	tagDevice   = 1<<3 | 2
	tagID       = 1<<3 | 2
	tagHealth   = 2<<3 | 2
	tagTopology = 3<<3 | 2
)

// split hands on the encoded devices of a message until yield is false; plain is false when there
// is anything else in it, up to there.
func split[T string | []byte](msg T, yield func(T) bool) (plain bool) {
	for len(msg) > 0 {
		if msg[0] != tagDevice {
			return false
		}
		entry, rest, ok := field(msg[1:])
		if !ok {
			return false
		}
		if !yield(entry) {
			return true
		}
		msg = rest
	}
	return true
}

// field cuts a length and that many bytes off in.
func field[T string | []byte](in T) (value, rest T, ok bool) {
	var length uint64
	for i := 0; i < len(in) && i < binary.MaxVarintLen32; i++ {
		length |= uint64(in[i]&0x7f) << (7 * i)
		if in[i] < 0x80 {
			in = in[i+1:]
			if length > uint64(len(in)) {
				return value, rest, false
			}
			return in[:length], in[length:], true
		}
	}
	return value, rest, false
}

// frame is a message as it came; free gives its memory back.
type frame struct{ mem.Buffer }

// frameCodec hands messages on without decoding them. Requests are encoded as ever.
type frameCodec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// Name implements encoding.CodecV2. Empty, it leaves the call's content type as it always is.
func (frameCodec) Name() string { return "" }

// asFrames makes a call receive frames.
func asFrames() grpc.CallOption {
	return grpc.ForceCodecV2(frameCodec{encoding.GetCodecV2("proto")})
}
