package serve

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// list is the devices that are offered. They are never changed, only replaced.
type list struct {
	mu      sync.Mutex
	devices []*v1beta1.Device
	ids     map[string]bool
	changed chan struct{} // closed and made anew when the devices are replaced
}

func newList() *list { return &list{changed: make(chan struct{})} }

func (l *list) set(devices []*v1beta1.Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(a, b *v1beta1.Device) bool { return proto.Equal(a, b) }
	if l.ids != nil && slices.EqualFunc(l.devices, devices, same) {
		return
	}
	l.devices, l.ids = devices, make(map[string]bool, len(devices))
	for _, d := range devices {
		l.ids[d.GetID()] = true
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// get is the list, and a channel that is closed when there is another one.
func (l *list) get() ([]*v1beta1.Device, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.devices, l.changed
}

func (l *list) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id]
}
