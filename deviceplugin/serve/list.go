package serve

import (
	"slices"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

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
