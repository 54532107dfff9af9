// Package sim is a device plugin as any author might write it: it serves v1beta1 on a socket in the
// device plugin directory, registers, and registers again when the kubelet's socket is made anew.
// It also works under the stock kubelet. Its devices are invented, and a control socket takes
// orders to change them, to misbehave in each call, to crash and to restart; see Client.
package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/topology"
)

// Config configures New.
type Config struct {
	// Resource is the extended resource, "example.com/gpu".
	Resource string
	// Dir is the device plugin directory.
	Dir string
	// RegistryDir is the kubelet's plugins_registry. If set, the socket is made there instead of in
	// Dir, and the kubelet asks the plugin to register.
	RegistryDir string
	// Socket is the name of the plugin's socket in the directory; empty: derived from the resource.
	Socket string
	// Control is the path of the control socket; empty: none.
	Control string
	// Devices are the initial devices.
	Devices []Device
	// Faults are the initial faults.
	Faults []Fault
	// Answer holds what containers get besides the environment variable that names their devices.
	Answer Answer
	// NoPreferred: GetPreferredAllocation is not offered.
	NoPreferred bool
	// PreStart: PreStartContainer is asked for.
	PreStart bool
	// Released: numalet.deviceplugin.v1.Lifecycle is served.
	Released bool
	// Out takes a line for people on each event; nil: none.
	Out io.Writer
}

// Device is one invented device.
type Device struct {
	ID      string            `json:"id"`
	Healthy bool              `json:"healthy"`
	Nodes   []topology.NodeID `json:"nodes,omitempty"`
	// PCI is the address of the function that it stands for; "": none.
	PCI string `json:"pci,omitempty"`
	// Reason says, for people, why it is unhealthy.
	Reason string `json:"reason,omitempty"`
}

// Answer holds what Allocate answers for each container.
type Answer struct {
	// DevicePaths lists device nodes of the host: "/dev/null" or "host:container:permissions".
	DevicePaths []string
	// Mounts lists "host:container", with ":ro" for read-only.
	Mounts []string
	// Annotations are the container's.
	Annotations map[string]string
	// CDIKind names devices for CDI: kind "example.com/gpu" gives "example.com/gpu=gpu-0".
	CDIKind string
}

func (c Config) withDefaults() (Config, error) {
	domain, kind, found := strings.Cut(c.Resource, "/")
	if !found || domain == "" || kind == "" {
		return c, fmt.Errorf("resource %q: an extended resource is named like example.com/gpu",
			c.Resource)
	}
	c.Dir = cmp.Or(c.RegistryDir, c.Dir)
	if c.Dir == "" {
		return c, errors.New("the device plugin directory is not given")
	}
	c.Socket = cmp.Or(c.Socket, serve.SocketName(c.Resource))
	if filepath.Base(c.Socket) != c.Socket {
		return c, fmt.Errorf("socket %q: give a file name, the socket is made in %s",
			c.Socket, c.Dir)
	}
	c.Out = cmp.Or[io.Writer](c.Out, io.Discard)
	_, err := c.Answer.response(c.Resource, nil)
	return c, err
}

// Kind returns the part of a resource name after the domain: "gpu".
func Kind(resource string) string {
	_, kind, _ := strings.Cut(resource, "/")
	return kind
}

// EnvName returns the environment variable that names a container's devices of a resource:
// SIM_GPU_VISIBLE_DEVICES for example.com/gpu.
func EnvName(resource string) string {
	upper := strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(Kind(resource)))
	return "SIM_" + upper + "_VISIBLE_DEVICES"
}

// Layout says how devices are spread over nodes.
type Layout string

// The layouts: neighbours on one node, or neighbours on different nodes.
const (
	Blocked    Layout = "blocked"
	RoundRobin Layout = "round-robin"
)

// Spread makes n healthy devices prefix-0, prefix-1, ... on the given nodes; without nodes the
// devices have no topology.
func Spread(prefix string, n int, nodes topology.NodeSet, layout Layout) ([]Device, error) {
	ids := nodes.IDs()
	devices := make([]Device, n)
	for i := range devices {
		devices[i] = Device{ID: fmt.Sprintf("%s-%d", prefix, i), Healthy: true}
		if len(ids) == 0 {
			continue
		}
		switch layout {
		case Blocked:
			devices[i].Nodes = []topology.NodeID{ids[i*len(ids)/n]}
		case RoundRobin:
			devices[i].Nodes = []topology.NodeID{ids[i%len(ids)]}
		default:
			return nil, fmt.Errorf("layout %q: there are %s and %s", layout, Blocked, RoundRobin)
		}
	}
	return devices, nil
}

// FromMachine makes one device for each PCI function of a class: "0302" for 3D controllers, "02"
// for all network controllers.
func FromMachine(m *topology.Machine, class, prefix string) ([]Device, error) {
	class = strings.ToLower(strings.TrimPrefix(class, "0x"))
	var devices []Device
	for _, pci := range m.PCI() {
		if !strings.HasPrefix(strings.ToLower(strings.TrimPrefix(pci.Class, "0x")), class) {
			continue
		}
		d := Device{ID: fmt.Sprintf("%s-%d", prefix, len(devices)), Healthy: true, PCI: pci.Address}
		if pci.Node != topology.NoNode {
			d.Nodes = []topology.NodeID{pci.Node}
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("machine %q has no PCI function of class %q; it has these: %s",
			m.Name(), class, classes(m))
	}
	return devices, nil
}

// classes lists the PCI classes of a machine.
func classes(m *topology.Machine) string {
	found := sets.New[string]()
	for _, pci := range m.PCI() {
		found.Insert(pci.Class)
	}
	return cmp.Or(strings.Join(sets.List(found), ", "), "none")
}
