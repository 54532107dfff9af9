package devicemanager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// message encodes devices written as "id@0,2 id! id": @ their nodes, ! for unhealthy. "id@" has a
// topology without nodes.
func message(t testing.TB, text string) []byte {
	t.Helper()
	msg := &v1beta1.ListAndWatchResponse{}
	for word := range strings.FieldsSeq(text) {
		id, nodes, placed := strings.Cut(strings.TrimSuffix(word, "!"), "@")
		d := &v1beta1.Device{ID: id, Health: v1beta1.Healthy}
		if strings.HasSuffix(word, "!") {
			d.Health = v1beta1.Unhealthy
		}
		if placed {
			d.Topology = &v1beta1.TopologyInfo{}
		}
		for n := range strings.SplitSeq(nodes, ",") {
			var node int64
			if _, err := fmt.Sscan(n, &node); err != nil {
				continue
			}
			d.Topology.Nodes = append(d.Topology.Nodes, &v1beta1.NUMANode{ID: node})
		}
		msg.Devices = append(msg.Devices, d)
	}
	return encoded(t, msg)
}

func encoded(t testing.TB, msg proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// text writes a list in the notation of message.
func (l list) text() string {
	var words []string
	for _, d := range l.devices {
		word := d.ID
		if !d.Nodes.IsEmpty() || d.NoNodes {
			word += "@" + d.Nodes.String()
		}
		if !d.Healthy {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// Each message follows the one before on the same stream.
func TestListsOfAStream(t *testing.T) {
	l := newLister(topology.NewNodeSet(0, 1, 2, 3))
	for i, step := range []struct {
		message, want string
		same          bool
	}{
		{"", "", true},
		{"g-0@0 g-1@1 g-2", "g-0@0 g-1@1 g-2", false},
		{"g-0@0 g-1@1 g-2", "g-0@0 g-1@1 g-2", true},
		{"g-0@0 g-1@1! g-2", "g-0@0 g-1@1! g-2", false},
		{"g-0@2,3 g-1@1! g-2@0", "g-0@2-3 g-1@1! g-2@0", false},
		{"g-10 g-2 g-1", "g-1 g-2 g-10", false}, // not in order
		{"g-10! g-2 g-1", "g-1 g-2 g-10!", false},
		{"g-10! g-1 g-2", "g-1 g-2 g-10!", true},
		{"g-10! g-1 g-3", "g-1 g-3 g-10!", false},
		{"g-1 g-1! g-3", "g-1! g-3", false}, // twice
		{"g-1! g-1 g-3", "g-1! g-3", true},
		{"g-1 g-3@7", "g-1 g-3", false},
		{"g-1 g-3", "g-1 g-3", false}, // without the complaint
		{"g-1", "g-1", false},
		{"g-1@", "g-1@", false}, // a topology without nodes differs from none
		{"g-1@ g-2@", "g-1@ g-2@", false},
		{"g-1@ g-2", "g-1@ g-2", false},
		{"", "", false},
		{"", "", true},
	} {
		got, changed, err := l.read(message(t, step.message))
		if err != nil || got.text() != step.want || changed == step.same {
			t.Errorf("step %d: %q, changed %t, %v; want %q, %t",
				i, got.text(), changed, err, step.want, !step.same)
		}
		if n := healthy(got.devices); n != got.healthy {
			t.Errorf("step %d: %d healthy devices, counted as %d", i, n, got.healthy)
		}
	}
}

func TestListsShare(t *testing.T) {
	l := newLister(topology.NewNodeSet(0))
	before, _, err := l.read(message(t, "a b c"))
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := l.read(message(t, "a b! c"))
	if err != nil {
		t.Fatal(err)
	}
	if before.devices[0] != after.devices[0] || before.devices[2] != after.devices[2] {
		t.Error("devices that did not change are other ones")
	}
	if !before.devices[1].Healthy {
		t.Error("the older list was written to")
	}
}

// Errors in lists, how they are read, and the complaint.
func TestBadLists(t *testing.T) {
	long := strings.Repeat("x", maxIDBytes+1)
	device := func(id, health string, nodes ...int64) *v1beta1.Device {
		d := &v1beta1.Device{ID: id, Health: health}
		for _, n := range nodes {
			if d.Topology == nil {
				d.Topology = &v1beta1.TopologyInfo{}
			}
			d.Topology.Nodes = append(d.Topology.Nodes, &v1beta1.NUMANode{ID: n})
		}
		return d
	}
	for name, tc := range map[string]struct {
		devices   []*v1beta1.Device
		want      string
		complaint string
	}{
		"no id": {[]*v1beta1.Device{device("", "Healthy"), device("a", "Healthy")}, "a",
			"1 without an id were left out: give every device an id"},
		"too long": {[]*v1beta1.Device{device(long, "Healthy"), device("a", "Healthy")}, "a",
			"1 with ids of more than 4096 bytes were left out: use shorter ids"},
		"twice": {[]*v1beta1.Device{device("a", "Healthy", 0), device("b", "Healthy"),
			device("a", "Healthy", 1)}, "a@1 b",
			"1 were listed more than once and count once: list each id once"},
		"healthy and not": {[]*v1beta1.Device{device("a", "Unhealthy"), device("a", "Healthy")},
			"a!",
			"1 were listed more than once and count once: list each id once; 1 were listed as " +
				"healthy and as unhealthy and count as unhealthy: send one health for each id"},
		"negative node": {[]*v1beta1.Device{device("a", "Healthy", -1)}, "a",
			"1 times a NUMA node that the machine does not have was left out, such as -1: name " +
				"the device's numa_node as sysfs has it, and no node where that is -1"},
		"unknown node": {[]*v1beta1.Device{device("a", "Healthy", 1, 9),
			device("b", "Healthy", 1<<62)}, "a@1 b",
			"2 times a NUMA node that the machine does not have was left out, such as 9: name " +
				"the device's numa_node as sysfs has it, and no node where that is -1"},
		"unknown health": {[]*v1beta1.Device{device("a", "Degraded"), device("b", ""),
			device("c", "healthy")}, "a! b! c!",
			"3 have a health that counts as unhealthy, such as \"\": send Healthy or Unhealthy"},
		"health in other letters": {[]*v1beta1.Device{device("a", "healthy"),
			device("b", "UNHEALTHY"), device("c", "Unhealthy")}, "a! b! c!",
			"2 have a health that counts as unhealthy, such as \"UNHEALTHY\": send Healthy or " +
				"Unhealthy"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLister(topology.NewNodeSet(0, 1))
			got, _, err := l.read(encoded(t, &v1beta1.ListAndWatchResponse{Devices: tc.devices}))
			if err != nil || got.text() != tc.want || got.defects.String() != tc.complaint {
				t.Errorf("%q, complaint %q, %v; want %q, %q",
					got.text(), got.defects, err, tc.want, tc.complaint)
			}
		})
	}
	l := newLister(topology.NewNodeSet(0))
	got, _, err := l.read([]byte("\x0a\x05\x0a\x03a\xffb\x0a\x03\x0a\x01c"))
	const want = "1 whose ids are not UTF-8 were left out: use plain text as ids; 1 have a " +
		"health that counts as unhealthy, such as \"\": send Healthy or Unhealthy"
	if err != nil || got.text() != "c!" || got.defects.String() != want {
		t.Errorf("an id that is not UTF-8 gives %q, %q, %v", got.text(), got.defects, err)
	}
	before := got.text()
	if got, _, err := l.read([]byte("\x0a\x05\x0a")); err == nil || got.text() != before {
		t.Errorf("a message that is cut off gives %q, %v", got.text(), err)
	}
}

// A lister agrees with the protobuf library and listOf, whatever it read before.
func TestListerIsTheLibrary(t *testing.T) {
	nodes := topology.NewNodeSet(0, 1)
	rapid.Check(t, func(t *rapid.T) {
		l := newLister(nodes)
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			msg := &v1beta1.ListAndWatchResponse{}
			for i := range rapid.IntRange(0, 20).Draw(t, "devices") {
				d := &v1beta1.Device{ID: fmt.Sprint(i), Health: v1beta1.Healthy}
				switch rapid.IntRange(0, 30).Draw(t, "kind") {
				case 0:
					d.ID = "0"
				case 1:
					d.ID = ""
				case 2:
					d.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 7}, {ID: 1}}}
				case 3, 4:
					d.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 1}, {ID: 0}}}
				case 7:
					d.Topology = &v1beta1.TopologyInfo{}
				case 5, 6:
					d.Health = v1beta1.Unhealthy
				}
				msg.Devices = append(msg.Devices, d)
			}
			if rapid.Bool().Draw(t, "shuffled") {
				rand.Shuffle(len(msg.Devices), func(i, j int) {
					msg.Devices[i], msg.Devices[j] = msg.Devices[j], msg.Devices[i]
				})
			}
			raw, err := proto.Marshal(msg)
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, l, raw)
		}
	})
}

// checkRead reads one message and compares the outcome with that of listOf.
func checkRead(t interface{ Errorf(string, ...any) }, l *lister, raw []byte) {
	before := l.current
	kept := before.text()
	got, changed, err := l.read(slices.Clone(raw))
	decoded := &v1beta1.ListAndWatchResponse{}
	if before.text() != kept {
		t.Errorf("%x changed the list before it from %q to %q", raw, kept, before.text())
	}
	if plain := proto.Unmarshal(raw, decoded); plain != nil {
		if err == nil && got.defects.NotUTF8 == 0 && utf8.Valid(raw) {
			t.Errorf("%x is read as %q, and is none: %v", raw, got.text(), plain)
		}
		return
	}
	want := listOf(decoded, l.machine)
	if err != nil || !got.says(want) || got.healthy != want.healthy ||
		changed == want.says(before) {
		t.Errorf("%x is read as %q (%v), changed %t, %v; want %q (%v), before %q", raw, got.text(),
			got.defects, changed, err, want.text(), want.defects, kept)
	}
}
