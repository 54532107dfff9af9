package devicemanager

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// maxIDBytes bounds a device id. It is PATH_MAX: the longest ids in use are paths.
const maxIDBytes = 4096

// list is the content of one message of ListAndWatch. It is immutable.
type list struct {
	devices []*Device // in natural order of ids, each once
	healthy int
	defects defects
	reasons Reasons
	// addresses are the PCI addresses of devices, by id, as far as the plugin tells.
	addresses map[string]string
}

// unhealthy returns the ids of unhealthy devices, at most so many.
func (l list) unhealthy(most int) (ids []string) {
	for _, d := range l.devices {
		if !d.Healthy && len(ids) < most {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// defects counts the parts of a list that were ignored or read in the safe way.
type defects struct {
	// Unnamed, TooLong and NotUTF8 count devices ignored because of their ids.
	Unnamed, TooLong, NotUTF8 int
	// Duplicates counts devices whose id occurs again later in the list, Conflicts those of them
	// whose health differs. The nodes of the last one count; a device that is unhealthy anywhere is
	// unhealthy.
	Duplicates, Conflicts int
	// BadNodes counts NUMA nodes that the machine does not have; BadNode is the lowest of them.
	BadNodes int
	BadNode  int64
	// NoNodes counts devices with a topology that names no node.
	NoNodes int
	// OddHealth counts devices with a health that the API does not define; Odd is the first of
	// these words in alphabetical order, cut.
	OddHealth int
	Odd       string
}

// String says what is wrong and what the plugin's author should do; empty if nothing is wrong.
func (d defects) String() string { return inWords(d.flaws()) }

// flaws returns the defects in words.
func (d defects) flaws() (out []Flaw) {
	add := func(n int, kind FlawKind, found, advice string) {
		if n > 0 {
			out = append(out, Flaw{kind, fmt.Sprintf("%d %s", n, found), advice})
		}
	}
	add(d.Unnamed, FlawID, "without an id were left out", "give every device an id")
	add(d.TooLong, FlawID, fmt.Sprintf("with ids of more than %d bytes were left out", maxIDBytes),
		"use shorter ids")
	add(d.NotUTF8, FlawID, "whose ids are not UTF-8 were left out", "use plain text as ids")
	add(d.Duplicates, FlawTwice, "were listed more than once and count once",
		"list each id once")
	add(d.Conflicts, FlawTwice, "were listed as healthy and as unhealthy and count as unhealthy",
		"send one health for each id")
	add(d.OddHealth, FlawHealth, fmt.Sprintf("have a health that counts as unhealthy, such as %q",
		d.Odd), "send Healthy or Unhealthy")
	add(d.BadNodes, FlawNode, fmt.Sprintf("times a NUMA node that the machine does not have was "+
		"left out, such as %d", d.BadNode),
		"name the device's numa_node as sysfs has it, and no node where that is -1")
	add(d.NoNodes, FlawNoNode, "have a topology that names no NUMA node, and podresources does not "+
		"list them, as it does not with the kubelet", "leave Topology nil where there is no node")
	return out
}

// arrange puts devices into natural order, each once. order holds the original indices of the
// devices if the order changed, and is nil if it did not.
func arrange(devices []*Device, found defects) (l list, order []int32) {
	l = list{devices: devices, defects: found}
	if !ordered(devices) {
		order = orderOf(devices)
		l.devices = l.inOrder(order)
	}
	for _, d := range l.devices {
		l.healthy += count(d.Healthy)
	}
	return l, order
}

// ordered reports whether devices are in natural order, each once. Lists are long, and most are
// ordered.
func ordered(devices []*Device) bool {
	for i := 1; i < len(devices); i++ {
		if CompareIDs(devices[i-1].ID, devices[i].ID) >= 0 {
			return false
		}
	}
	return true
}

// orderOf returns the indices of devices in natural order; equal ids keep their order.
func orderOf(devices []*Device) []int32 {
	order := make([]int32, len(devices))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(CompareIDs(devices[a].ID, devices[b].ID), cmp.Compare(a, b))
	})
	return order
}

// inOrder returns the devices in an order, with one for equal ids.
func (l *list) inOrder(order []int32) []*Device {
	out := make([]*Device, 0, len(order))
	for _, at := range order {
		d := l.devices[at]
		last := len(out) - 1
		if last < 0 || out[last].ID != d.ID {
			out = append(out, d)
			continue
		}
		l.defects.Duplicates++
		if out[last].Healthy != d.Healthy {
			l.defects.Conflicts++
			d = &Device{ID: d.ID, NoNodes: d.NoNodes, Nodes: d.Nodes}
		}
		out[last] = d
	}
	return out
}

// down returns the list of an absent plugin: the same devices, all unhealthy.
func (l list) down() list {
	devices := make([]Device, len(l.devices))
	out := list{devices: make([]*Device, len(l.devices)), defects: l.defects, addresses: l.addresses}
	for i, d := range l.devices {
		devices[i] = Device{ID: d.ID, NoNodes: d.NoNodes, Nodes: d.Nodes}
		out.devices[i] = &devices[i]
	}
	return out
}

// says reports whether both lists have the same content.
func (l list) says(o list) bool {
	if len(l.devices) > 0 && len(o.devices) > 0 && &l.devices[0] == &o.devices[0] &&
		len(l.devices) == len(o.devices) {
		return l.defects == o.defects
	}
	return l.defects == o.defects && slices.EqualFunc(l.devices, o.devices,
		func(a, b *Device) bool { return a == b || *a == *b })
}

// listOf reads a decoded message. It is the simple way, lister the fast one.
func listOf(msg *v1beta1.ListAndWatchResponse, nodes topology.NodeSet) list {
	var found defects
	devices := make([]*Device, 0, len(msg.GetDevices()))
	for _, d := range msg.GetDevices() {
		if !found.accepts(d.GetID()) {
			continue
		}
		set, bad := nodesOf(d.GetTopology(), nodes)
		found.missing(bad)
		devices = append(devices, &Device{
			ID: d.GetID(), Healthy: found.healthy(d.GetHealth()), Nodes: set,
			NoNodes: found.noNodes(d.GetTopology() != nil && len(d.GetTopology().GetNodes()) == 0),
		})
	}
	l, _ := arrange(devices, found)
	return l
}

// accepts reports whether an id is usable, and counts it if not.
func (d *defects) accepts(id string) bool {
	switch {
	case id == "":
		d.Unnamed++
	case len(id) > maxIDBytes:
		d.TooLong++
	case !utf8.ValidString(id):
		d.NotUTF8++
	default:
		return true
	}
	return false
}

// healthy reads a device's health, and counts one that the API does not define.
func (d *defects) healthy(health string) bool {
	switch health {
	case v1beta1.Healthy:
		return true
	case v1beta1.Unhealthy:
		return false
	}
	if odd := oneline.Cut(health, 64); d.OddHealth == 0 || odd < d.Odd {
		d.Odd = odd
	}
	d.OddHealth++
	return false
}

// missing counts nodes that the machine does not have.
func (d *defects) missing(bad []int64) {
	for _, node := range bad {
		if d.BadNodes == 0 || node < d.BadNode {
			d.BadNode = node
		}
		d.BadNodes++
	}
}

// noNodes counts a device whose topology names no node.
func (d *defects) noNodes(is bool) bool {
	d.NoNodes += count(is)
	return is
}

// nodesOf splits the nodes of a device into those that the machine has and those that it lacks.
func nodesOf(info *v1beta1.TopologyInfo,
	machine topology.NodeSet) (set topology.NodeSet, bad []int64) {
	for _, n := range info.GetNodes() {
		id := topology.NodeID(n.GetID())
		if !machine.Has(id) {
			bad = append(bad, n.GetID())
			continue
		}
		set = set.Union(topology.NewNodeSet(id))
	}
	return set, bad
}
