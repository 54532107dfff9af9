package serve

import (
	"cmp"
	"context"
	"sync"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Config says what to serve, where, and what containers get.
type Config struct {
	// Dir is the device manager's directory, which has kubelet.sock or will have it. Socket is the
	// name of the plugin's own socket in it; "": SocketName of the resource.
	Dir, Socket string
	// Resource is the extended resource, example.com/eni.
	Resource string
	// Allocate returns what a container gets with the devices, all of which have been listed.
	Allocate func(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error)
	// Prefer picks size of the available devices, must included. Nil: it is not offered.
	Prefer func(available, must []string, size int) ([]string, error)
	// Prepare makes devices ready before each start of their container. Nil: they always are.
	Prepare func(ctx context.Context, ids []string) error
	// Released is called for devices that no pod holds any more; the kubelet does not report these.
	// Nil: it is not served.
	Released Released
	// Reasons says why devices are unhealthy. Nil: it is not served.
	Reasons Texts
	// Places has the PCI addresses of devices, so that containers get devices close to each other.
	// Nil: it is not served.
	Places Texts
	// Log takes lines for people.
	Log func(format string, args ...any)
}

// Plugin is the device plugin of one resource.
type Plugin struct {
	cfg Config

	mu      sync.Mutex
	devices []*v1beta1.Device // replaced, never changed
	ids     map[string]bool   // of the devices
	changed chan struct{}     // closed and replaced with the devices
}

// New returns a plugin without devices, which Run serves.
func New(cfg Config) *Plugin {
	cfg.Socket = cmp.Or(cfg.Socket, SocketName(cfg.Resource))
	return &Plugin{cfg: cfg, changed: make(chan struct{})}
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{
		PreStartRequired:                p.cfg.Prepare != nil,
		GetPreferredAllocationAvailable: p.cfg.Prefer != nil,
	}
}
