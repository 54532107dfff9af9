package serve

import (
	"cmp"
	"context"
	"sync"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Config says which devices are served, where, and what containers get with them.
type Config struct {
	// Dir is the device manager's directory, where kubelet.sock is or will be. Socket is the name of
	// the plugin's own socket in it; "": SocketName of the resource.
	Dir, Socket string
	// Resource is the extended resource, example.com/eni.
	Resource string
	// Allocate says what a container gets that is given devices, each of which has been listed.
	Allocate func(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error)
	// Prefer chooses size of the available devices, those that must be among them. Nil: it is not
	// asked for.
	Prefer func(available, must []string, size int) ([]string, error)
	// Prepare makes the devices ready before each start of their container. Nil: they always are.
	Prepare func(ctx context.Context, ids []string) error
	// Released hears which devices nobody has any more; the kubelet does not tell. Nil: it is not
	// asked for.
	Released Released
	// Reasons says why devices are unhealthy. Nil: it is not asked for.
	Reasons Reasons
	// Log gets a line for people on what happens.
	Log func(format string, args ...any)
}

// Plugin is one resource's device plugin: a list of devices and what containers get with them.
type Plugin struct {
	cfg Config

	mu      sync.Mutex
	devices []*v1beta1.Device // never changed, only replaced
	ids     map[string]bool   // of the devices
	changed chan struct{}     // closed and made anew when the devices are replaced
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
