package gpuallocator_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// paths are the kinds of ways over PCIe; the library's type for them is internal to it.
var paths = map[prefer.Path]gpuallocator.P2PLink{
	prefer.System: {Type: 1}, prefer.Node: {Type: 2}, prefer.Bridge: {Type: 3},
	prefer.Switches: {Type: 4}, prefer.Switch: {Type: 5}, prefer.Board: {Type: 6},
}

// nvlinks are the kinds for 1 to 18 NVLinks between two GPUs.
var nvlinks = [...]gpuallocator.P2PLink{{}, {Type: 7}, {Type: 8}, {Type: 9}, {Type: 10},
	{Type: 11}, {Type: 12}, {Type: 13}, {Type: 14}, {Type: 15}, {Type: 16}, {Type: 17}, {Type: 18},
	{Type: 19}, {Type: 20}, {Type: 21}, {Type: 22}, {Type: 23}, {Type: 24}}

// machine is one machine as both know it.
type machine struct {
	name    string
	links   prefer.Links
	devices gpuallocator.DeviceList
}

// open reads a machine that is built in. The library finds the NVLinks that go from one GPU to another
// and none that go to switches; it is given those.
func open(t *testing.T, name string) machine {
	t.Helper()
	described, err := mock.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mock.New(described).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	snapshot, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	m := machine{name: name, links: snapshot.Links}
	for i := range snapshot.GPUs {
		d := &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		d.UUID = fmt.Sprint(i)
		m.devices = append(m.devices, d)
	}
	for i, d := range m.devices {
		for j, to := range m.devices {
			if i == j {
				continue
			}
			link := paths[m.links[i][j].Path]
			link.GPU = to
			d.Links[j] = append(d.Links[j], link)
			if count := direct(described, m.links[i][j]); count > 0 {
				link = nvlinks[count]
				link.GPU = to
				d.Links[j] = append(d.Links[j], link)
			}
		}
	}
	return m
}

// direct returns how many NVLinks join two GPUs without a switch.
func direct(m *mock.Machine, l prefer.Link) int {
	if m.NVLink.Pairs == nil {
		return 0
	}
	return l.NVLink / m.NVLink.GBps
}

// allocator picks size of the free GPUs.
type allocator func(m machine, free []int, size int) []int

func ours(m machine, free []int, size int) []int {
	return m.links.Choose(free, nil, size)
}

func theirs(m machine, free []int, size int) (out []int) {
	var available []*gpuallocator.Device
	for _, i := range free {
		available = append(available, m.devices[i])
	}
	policy := gpuallocator.NewBestEffortPolicy() // the one that NVIDIA's plugin uses
	for _, d := range policy.Allocate(available, nil, size) {
		out = append(out, d.Index)
	}
	slices.Sort(out)
	return out
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all),
		func(i int) bool { return slices.Contains(some, i) })
}

// best returns the quality of the best group of that size, by trying all; "-" if there are too few.
func (m machine) best(of []int, size int) (best prefer.Quality, found bool) {
	for mask := range uint(1 << len(of)) {
		var group []int
		for n, i := range of {
			if mask&(1<<n) != 0 {
				group = append(group, i)
			}
		}
		if len(group) != size {
			continue
		}
		if q := m.links.Of(group); !found || q.Compare(best) > 0 {
			best, found = q, true
		}
	}
	return best, found
}
