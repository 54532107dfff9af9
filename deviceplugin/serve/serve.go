package serve

import (
	"context"
	"log"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Config says which devices are served, where, and what containers get with them.
type Config struct {
	// Dir is the device manager's directory, where kubelet.sock is or will be.
	Dir string
	// Resource is the extended resource, example.com/eni.
	Resource string
	// Allocate says what a container gets that is given devices, each of which has been listed.
	Allocate func(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error)
	// Prepare makes the devices ready before each start of their container. Nil: they always are.
	Prepare func(ctx context.Context, ids []string) error
	// Released hears which devices nobody has any more; the kubelet does not tell. Nil: it is not
	// asked for.
	Released Released
	// Reasons says why devices are unhealthy. Nil: it is not asked for.
	Reasons Reasons
	Log     *log.Logger
}

// Plugin is one resource's device plugin: a list of devices and what containers get with them.
type Plugin struct {
	cfg  Config
	list *list
}

// New returns a plugin without devices, which Run serves.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg, list: newList()} }

// SetDevices replaces the list of devices. Who watches it hears of it if it differs.
func (p *Plugin) SetDevices(devices []*v1beta1.Device) { p.list.set(devices) }

// Devices is the list as it was set last. Nobody may change it.
func (p *Plugin) Devices() []*v1beta1.Device {
	devices, _ := p.list.get()
	return devices
}

// Run serves the plugin until ctx is done, and registers it whenever kubelet.sock is made.
func (p *Plugin) Run(ctx context.Context) error {
	return Server{
		Dir: p.cfg.Dir, Resource: p.cfg.Resource, Options: p.options(),
		Answers: &answers{plugin: p}, Log: p.cfg.Log.Printf,
		Lifecycle: Lifecycle{Released: p.cfg.Released, Reasons: p.cfg.Reasons},
	}.Run(ctx)
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{PreStartRequired: p.cfg.Prepare != nil}
}
