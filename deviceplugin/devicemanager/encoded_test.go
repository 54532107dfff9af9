package devicemanager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// The same list in another order is no change.
func TestAnotherOrderIsNoChange(t *testing.T) {
	l := newLister(topology.NewNodeSet(0, 1))
	read := func(text string) (list, bool) {
		now, changed, err := l.read(message(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return now, changed
	}
	first, _ := read("a@0 b@9 c d! e@1 f g h i")
	for _, text := range []string{
		"i h g f e@1 d! c b@9 a@0", "b@9 a@0 c d! e@1 f g h i", "b@9 c d! e@1 f g h i a@0",
		"a@0 b@9 c d! e@1 f g h i", "a@0 b@9 c d! e@1 f g h i",
	} {
		now, changed := read(text)
		if changed || &now.devices[0] != &first.devices[0] || now.defects != first.defects {
			t.Errorf("%s: changed %t, %s", text, changed, now.text())
		}
	}
	now, changed := read("i! h a@0 g f e@1 d! c b@9")
	if !changed || now.text() != "a@0 b c d! e@1 f g h i!" || now.defects != first.defects {
		t.Errorf("one of them is unhealthy: changed %t, %s", changed, now.text())
	}
}

// A device that comes or goes anywhere, or a few that change places, need no table of all ids.
func TestFewAreSearchedFor(t *testing.T) {
	l := newLister(topology.NewNodeSet(0))
	var all []*v1beta1.Device
	for i := range 1000 {
		all = append(all, &v1beta1.Device{ID: fmt.Sprint("gpu-", i), Health: v1beta1.Healthy})
	}
	swapped := slices.Clone(all)
	swapped[3], swapped[900] = swapped[900], swapped[3]
	for i, devices := range [][]*v1beta1.Device{
		all, slices.Delete(slices.Clone(all), 500, 501), all, swapped, swapped, all[1:], all,
	} {
		msg := &v1beta1.ListAndWatchResponse{Devices: devices}
		if now, _, err := l.read(encoded(t, msg)); err != nil || len(now.devices) != len(devices) {
			t.Fatal(len(now.devices), err)
		}
		if l.last.places != nil {
			t.Errorf("message %d made a table of all devices", i)
		}
	}
	rand.Shuffle(len(swapped), func(i, j int) { swapped[i], swapped[j] = swapped[j], swapped[i] })
	_, changed, err := l.read(encoded(t, &v1beta1.ListAndWatchResponse{Devices: swapped}))
	if changed || err != nil || l.last.places == nil {
		t.Errorf("another order of all: changed %t, %v, table %t",
			changed, err, l.last.places != nil)
	}
}

// Lists that differ in few devices share the others, whatever the order and whatever was read
// before.
func TestFewDifferencesAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*v1beta1.Device
		next := 0
		add := func() {
			d := &v1beta1.Device{ID: fmt.Sprintf("gpu-%d", next*7919%1000), Health: v1beta1.Healthy}
			if next%3 == 0 {
				d.Topology = &v1beta1.TopologyInfo{
					Nodes: []*v1beta1.NUMANode{{ID: int64(next % 5)}},
				}
			}
			next++
			all = append(all, d)
		}
		for range rapid.IntRange(9, 40).Draw(t, "devices") {
			add()
		}
		l := newLister(topology.NewNodeSet(0, 1, 2, 3, 4))
		checkRead(t, l, encodedAs(t, all))
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			before, most, differ := l.current, len(all)/8+1, 0
			for range rapid.IntRange(0, most).Draw(t, "differences") {
				at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
				switch rapid.IntRange(0, 2).Draw(t, "kind") {
				case 0:
					if len(all) == 9 {
						continue
					}
					all = slices.Delete(all, at, at+1)
				case 1:
					add()
				default:
					health := map[bool]string{true: v1beta1.Unhealthy, false: v1beta1.Healthy}
					all[at] = &v1beta1.Device{
						ID: all[at].ID, Health: health[all[at].Health == v1beta1.Healthy],
					}
				}
				differ++
			}
			if rapid.Bool().Draw(t, "another order") {
				all = rapid.Permutation(all).Draw(t, "order")
			}
			checkRead(t, l, encodedAs(t, all))
			checkShared(t, before, l.current, differ)
			checkEncodedList(t, l)
		}
	})
}

// checkShared checks that both lists share all devices except differ of them.
func checkShared(t *rapid.T, before, after list, differ int) {
	shared := 0
	for _, d := range after.devices {
		if slices.Contains(before.devices, d) {
			shared++
		}
	}
	if shared < len(after.devices)-differ {
		t.Errorf("%d of %d devices are shared where %d differ", shared, len(after.devices), differ)
	}
}

// checkEncodedList derives again what a lister remembers of the last message.
func checkEncodedList(t *rapid.T, l *lister) {
	s := l.last
	if s == nil || !slices.Equal(s.devices, l.current.devices) {
		t.Fatalf("what the last message said is lost or of another list")
	}
	for i, entry := range s.entries {
		var found defects
		if d, plain := l.decode(entry, &found); !plain || d != *s.devices[i] {
			t.Errorf("the entry of %+v reads as %+v", *s.devices[i], d)
		}
		if at, known := s.places[s.devices[i].ID]; s.places != nil && (!known || int(at) != i) {
			t.Errorf("%s is at %d, not at %d", s.devices[i].ID, i, at)
		}
	}
}

func encodedAs(t *rapid.T, devices []*v1beta1.Device) []byte {
	raw, err := proto.Marshal(&v1beta1.ListAndWatchResponse{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
