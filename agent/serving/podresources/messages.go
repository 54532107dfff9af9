package podresources

import (
	"iter"
	"maps"
	"slices"
	"strings"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// devicesPerMessage keeps messages far below 4 MiB, the default limit of gRPC clients.
const devicesPerMessage = 1000

// filter selects what a reader wants; the zero value is all pods.
type filter struct {
	namespace, resource string
	allocatable         bool
}

// pod reports whether the reader wants the pod; it does not want nil.
func (f filter) pod(p *podresourcesv1.PodResources) bool {
	if p == nil || f.namespace != "" && p.Namespace != f.namespace {
		return false
	}
	pool := &podresourcesv1.ContainerResources{CpuIds: p.CpuIds, Memory: p.Memory}
	return f.resource == "" || holds(pool, f.resource) || slices.ContainsFunc(p.Containers,
		func(c *podresourcesv1.ContainerResources) bool { return holds(c, f.resource) })
}

func holds(c *podresourcesv1.ContainerResources, resource string) bool {
	if resource == "cpu" {
		return len(c.CpuIds) > 0
	}
	return slices.ContainsFunc(c.Devices, func(d *podresourcesv1.ContainerDevices) bool {
		return d.ResourceName == resource
	}) || slices.ContainsFunc(c.Memory, func(m *podresourcesv1.ContainerMemory) bool {
		return m.MemoryType == resource
	})
}

// node reports whether the reader wants the node's CPUs and memory.
func (f filter) node() bool { return f.allocatable && !strings.Contains(f.resource, "/") }

func (f filter) devices(resource string) bool {
	return f.allocatable && (f.resource == "" || f.resource == resource)
}

// messages returns the whole state: a message to forget the old one, everything, a bookmark.
func (s *state) messages(f filter, lost bool) iter.Seq[*watchv1.WatchResponse] {
	return func(yield func(*watchv1.WatchResponse) bool) {
		if !yield(&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Snapshot{
			Snapshot: &watchv1.Snapshot{HistoryLost: lost},
		}}) {
			return
		}
		all := change{node: s.node}
		for _, h := range s.pods {
			all.pods = append(all.pods, podChange{uid: h.uid, after: h.has, places: h.places})
		}
		for _, name := range slices.Sorted(maps.Keys(s.from.Inventory.Resources)) {
			if f.devices(name) {
				all.devices = append(all.devices, s.from.devicesSince(nil, name))
			}
		}
		for m := range all.messages(f) {
			if !yield(m) {
				return
			}
		}
		yield(bookmark())
	}
}

func bookmark() *watchv1.WatchResponse {
	return &watchv1.WatchResponse{
		Event: &watchv1.WatchResponse_Bookmark{Bookmark: &watchv1.Bookmark{}},
	}
}

// messages returns the parts of the change that the reader wants.
func (c change) messages(f filter) iter.Seq[*watchv1.WatchResponse] {
	return func(yield func(*watchv1.WatchResponse) bool) {
		for _, p := range c.pods {
			if m := p.message(f); m != nil && !yield(m) {
				return
			}
		}
		if c.node != nil && f.node() && !yield(&watchv1.WatchResponse{
			Event: &watchv1.WatchResponse_Node{Node: c.node},
		}) {
			return
		}
		for _, d := range c.devices {
			if !f.devices(d.resource) {
				continue
			}
			for m := range d.messages() {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// message returns nil if the reader neither has nor wants the pod.
func (c podChange) message(f filter) *watchv1.WatchResponse {
	switch {
	case f.pod(c.after):
		return &watchv1.WatchResponse{Event: &watchv1.WatchResponse_Pod{
			Pod: &watchv1.Pod{Uid: string(c.uid), Resources: c.after, Places: c.places},
		}}
	case f.pod(c.before):
		return &watchv1.WatchResponse{Event: &watchv1.WatchResponse_DeletedPod{
			DeletedPod: &watchv1.DeletedPod{
				Uid: string(c.uid), Namespace: c.before.Namespace, Name: c.before.Name,
			},
		}}
	}
	return nil
}

func (c deviceChange) messages() iter.Seq[*watchv1.WatchResponse] {
	return func(yield func(*watchv1.WatchResponse) bool) {
		for ids := range slices.Chunk(c.deleted, devicesPerMessage) {
			if !yield(c.message(nil, ids)) {
				return
			}
		}
		for devices := range slices.Chunk(c.put, devicesPerMessage) {
			if !yield(c.message(devices, nil)) {
				return
			}
		}
	}
}

func (c deviceChange) message(put []*devicemanager.Device, deleted []string) *watchv1.WatchResponse {
	m := &watchv1.Devices{ResourceName: c.resource, DeletedIds: deleted, Places: c.places(put)}
	for _, d := range put {
		m.Put = append(m.Put, entries(c.resource, d)...)
	}
	return &watchv1.WatchResponse{Event: &watchv1.WatchResponse_Devices{Devices: m}}
}
