package serve

import (
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// Device returns the list entry of a device near NUMA nodes; topology.NoNode is none.
func Device(id string, healthy bool, nodes ...topology.NodeID) *v1beta1.Device {
	d := &v1beta1.Device{ID: id, Health: v1beta1.Unhealthy}
	if healthy {
		d.Health = v1beta1.Healthy
	}
	for _, n := range nodes {
		if n == topology.NoNode {
			continue
		}
		if d.Topology == nil {
			d.Topology = &v1beta1.TopologyInfo{}
		}
		d.Topology.Nodes = append(d.Topology.Nodes, &v1beta1.NUMANode{ID: int64(n)})
	}
	return d
}

// SetDevices replaces the list of devices. Watchers hear of it if it differs.
func (p *Plugin) SetDevices(devices []*v1beta1.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := func(a, b *v1beta1.Device) bool { return proto.Equal(a, b) }
	if p.ids != nil && slices.EqualFunc(p.devices, devices, same) {
		return
	}
	p.devices, p.ids = devices, make(map[string]bool, len(devices))
	for _, d := range devices {
		p.ids[d.GetID()] = true
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Devices returns the current list. It is immutable.
func (p *Plugin) Devices() []*v1beta1.Device {
	devices, _ := p.current()
	return devices
}

// current returns the list, and a channel that is closed when it is replaced.
func (p *Plugin) current() ([]*v1beta1.Device, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.changed
}

func (p *Plugin) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[id]
}
