package podresources

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// state is the state at one generation. It is immutable.
type state struct {
	generation uint64
	pods       []holding // by namespace, name and uid
	node       *watchv1.Node
	from       Snapshot
}

// holding is a pod with what it holds.
type holding struct {
	uid    types.UID
	has    *podresourcesv1.PodResources
	places []*watchv1.Place
}

// change leads from the state of the previous generation to that of its own.
type change struct {
	generation uint64
	pods       []podChange   // pods that left, then new and changed ones
	node       *watchv1.Node // nil: as before
	devices    []deviceChange
	// whole is set if the change is too large to keep; readers get the state.
	whole bool
}

// podChange has no before for a new pod, and no after for one that left.
type podChange struct {
	uid           types.UID
	before, after *podresourcesv1.PodResources
	places        []*watchv1.Place // of its devices afterwards
}

// deviceChange describes changes of the allocatable devices of a connected plugin's resource.
type deviceChange struct {
	resource string
	put      []*devicemanager.Device
	deleted  []string
	// places returns where some of put are.
	places func([]*devicemanager.Device) []*watchv1.Place
}

// sorted returns the pods in the order of the answers.
func (s Snapshot) sorted() []*v1.Pod {
	return slices.SortedFunc(slices.Values(s.Pods), podspec.Compare)
}

// state returns a state that has no generation yet.
func (s Snapshot) state() *state {
	bare := s
	bare.Inventory = devicemanager.Inventory{}
	all := bare.allocatable()
	out := &state{
		node: &watchv1.Node{CpuIds: all.CpuIds, Memory: all.Memory},
		from: s,
	}
	for _, pod := range s.sorted() {
		out.pods = append(out.pods, holding{pod.UID, s.pod(pod), s.places(s.Assigned.Pods[pod.UID])})
	}
	return out
}

// list returns the pods in the form of List's answer.
func (s *state) list() []*podresourcesv1.PodResources {
	out := make([]*podresourcesv1.PodResources, 0, len(s.pods))
	for _, h := range s.pods {
		out = append(out, h.has)
	}
	return out
}

// follow compares next, which must not be shared yet, with the state before it. Afterwards both have
// their unchanged parts in common.
func follow(before, next *state) (c change, changed bool) {
	c.pods = diffPods(before, next)
	if proto.Equal(before.node, next.node) {
		next.node = before.node
	} else {
		c.node = next.node
	}
	c.devices = next.from.diffInventory(before.from.Inventory)
	next.generation = before.generation + 1
	c.generation = next.generation
	return c, len(c.pods) > 0 || c.node != nil || len(c.devices) > 0
}

func diffPods(before, next *state) (out []podChange) {
	gone := map[types.UID]holding{}
	for _, h := range before.pods {
		gone[h.uid] = h
	}
	var put []podChange
	for i, h := range next.pods {
		had, known := gone[h.uid]
		delete(gone, h.uid)
		if known && proto.Equal(had.has, h.has) && samePlaces(had.places, h.places) {
			next.pods[i] = had
			continue
		}
		put = append(put, podChange{uid: h.uid, before: had.has, after: h.has, places: h.places})
	}
	for _, h := range before.pods {
		if had, ok := gone[h.uid]; ok {
			out = append(out, podChange{uid: h.uid, before: had.has})
		}
	}
	return append(out, put...)
}

func (s Snapshot) diffInventory(before devicemanager.Inventory) (out []deviceChange) {
	next := s.Inventory
	if before.Version == next.Version {
		return nil
	}
	names := maps.Clone(next.Resources)
	maps.Copy(names, before.Resources)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if c := s.devicesSince(offered(before.Resources[name]), name); c.weight() > 0 {
			out = append(out, c)
		}
	}
	return out
}

// devicesSince returns how the devices of a resource differ from those of before.
func (s Snapshot) devicesSince(before []*devicemanager.Device, resource string) deviceChange {
	r := s.Inventory.Resources[resource]
	c := diffDevices(before, offered(r))
	c.resource, r.Name = resource, resource
	c.places = func(devices []*devicemanager.Device) []*watchv1.Place {
		return placesOf(s.Machine, r, devices)
	}
	return c
}

// offered returns the resource's devices if its plugin is connected.
func offered(r devicemanager.Resource) []*devicemanager.Device {
	if !r.Connected {
		return nil
	}
	return r.Devices
}

// diffDevices merges both lists, which are in natural order of ids.
func diffDevices(before, next []*devicemanager.Device) (c deviceChange) {
	for len(before) > 0 || len(next) > 0 {
		var had, has *devicemanager.Device
		var order int
		switch {
		case len(next) == 0:
			order = -1
		case len(before) == 0:
			order = 1
		default:
			order = devicemanager.CompareIDs(before[0].ID, next[0].ID)
		}
		if order <= 0 {
			had, before = before[0], before[1:]
		}
		if order >= 0 {
			has, next = next[0], next[1:]
		}
		switch {
		case allocatable(has) && (had == nil || *has != *had):
			c.put = append(c.put, has)
		case allocatable(had) && !allocatable(has):
			c.deleted = append(c.deleted, had.ID)
		}
	}
	return c
}

// weight is the size of a change; a device or a container's entry counts 1.
func (c change) weight() int {
	n := 1
	for _, p := range c.pods {
		n += podWeight(p.before) + podWeight(p.after)
	}
	for _, d := range c.devices {
		n += d.weight()
	}
	return n
}

func (c deviceChange) weight() int { return len(c.put) + len(c.deleted) }

func podWeight(p *podresourcesv1.PodResources) int {
	n := 1 + len(p.GetCpuIds())/8 + len(p.GetMemory())
	for _, c := range p.GetContainers() {
		n += 1 + len(c.Devices) + len(c.CpuIds)/8 + len(c.Memory)
	}
	return n
}
