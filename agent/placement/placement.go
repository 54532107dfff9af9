// Package placement decides where pods' containers go, and holds what they were given: devices, resource claims,
// CPUs and memory.
package placement

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/mailbox"
)

// Config has what the floor stands on. All fields are required but Cluster.
type Config struct {
	*node.Host
	Store *store.Store
	// CSI takes drivers of CSI volumes, which register where device plugins do.
	CSI     watcher.Handler
	Cluster *Cluster // nil: the node is in no cluster, and no pod has resource claims
}

// Cluster says what the API server says of claims.
type Cluster struct {
	// Claim reads a claim.
	Claim func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// Place says where a driver's device is.
	Place func(driver, pool, device string) claim.Place
	// Devices lists the devices of the node's ResourceSlices, by driver, pool and name.
	Devices func() []claim.Device
	// Object returns the node's object; nil: it is not known.
	Object func() *v1.Node
}

// Placement is the floor.
type Placement struct {
	Config
	Plugins  *devicemanager.Plugins
	Offered  *mailbox.Topic // plugins offer something else
	Drivers  Drivers
	Claims   Claims
	Failures *health.FailureBook // what was done about failed devices
}

// Drivers are the node's drivers of resource claims.
type Drivers struct {
	*dra.Drivers
	Changed *mailbox.Topic       // which can be called
	Gone    *mailbox.Box[string] // drivers without a usable plugin
	Health  *health.Drivers      // what they say of their devices
	Ill     *mailbox.Topic       // their health is another
}

// OpenStore opens the state file. An unusable file is moved aside: what runs makes up for it.
func OpenStore(ctx context.Context, n node.Node) (*store.Store, error) {
	s, err := store.Open(n.Settings.RootDir)
	if s == nil {
		return nil, err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Assignments are rebuilt from the containers that run")
		n.Events.OnNode(v1.EventTypeWarning, store.ReasonQuarantined,
			err.Error()+"; assignments are rebuilt from the containers that run")
	}
	return s, nil
}

// New makes the floor, with what earlier runs of the agent knew.
func New(ctx context.Context, c Config) (*Placement, error) {
	p := &Placement{Config: c, Offered: new(mailbox.Topic)}
	tellDriverCPUs(ctx, c.Node, c.Store)
	var err error
	if p.Drivers, err = newDrivers(ctx, c.Node); err != nil {
		return nil, err
	}
	rules, err := c.Settings.Failures.Rules()
	if err != nil {
		return nil, err
	}
	p.Failures, err = health.OpenFailures(c.Settings.RootDir, rules)
	if err = c.Quarantined(ctx, err, "DeviceFailuresQuarantined", "what was done about failed "+
		"devices may be done once more"); err != nil {
		return nil, err
	}
	if p.Plugins, err = p.plugins(ctx); err != nil {
		return nil, err
	}
	p.Claims, err = p.claims(ctx)
	return p, err
}

func newDrivers(ctx context.Context, n node.Node) (d Drivers, err error) {
	d.Changed, d.Ill, d.Gone = new(mailbox.Topic), new(mailbox.Topic), mailbox.New[string]()
	d.Health = health.OpenDrivers(ctx, n.Settings.RootDir, d.Ill.Publish)
	d.Drivers, err = dra.New(dra.Config{
		Changed: d.Changed.Publish, Gone: d.Gone.Put, Health: d.Health.Hear, Registry: n.Registry,
		Heard: n.Settings.Heard,
	})
	return d, err
}

// DeviceDir returns the directory of the device plugins' sockets.
func DeviceDir(root string) string {
	return filepath.Join(root, filepath.Base(filepath.Clean(pluginapi.DevicePluginPath)))
}

// plugins makes the device manager.
func (p *Placement) plugins(ctx context.Context) (*devicemanager.Plugins, error) {
	root, settings := p.Settings.RootDir, p.Settings.DevicePlugins
	cordons, err := cordon.Open(filepath.Join(root, cordon.FileName))
	if err = p.Quarantined(ctx, err, "CordonedDevicesQuarantined",
		"no device is cordoned now: cordon them again"); err != nil {
		return nil, err
	}
	lists, err := recall.Open(filepath.Join(root, recall.FileName))
	if err = p.Quarantined(ctx, err, "DeviceListsQuarantined",
		"devices count when their plugins have registered"); err != nil {
		return nil, err
	}
	return devicemanager.New(devicemanager.Config{
		Dirs: devicemanager.Dirs{
			Plugins: DeviceDir(root), Registry: filepath.Join(root, watcher.Registry),
			Others: map[string]watcher.Handler{
				registerapi.DRAPlugin: p.Drivers.Handler(), registerapi.CSIPlugin: p.CSI,
			},
		},
		NodeIDs: p.Machine().NodeSet(), Registry: p.Registry,
		Before: devicemanager.Before{Lists: lists,
			Resources: handover.KnownResources(p.Store.State(), DeviceDir(root))},
		Cordons:   cordons,
		Deadlines: settings.Deadlines, Graces: settings.Graces, Strict: settings.Strict,
		Changed: p.Offered.Publish, Stats: p.Settings.Heard, Refused: p.refused,
	})
}

func (p *Placement) refused(r devicemanager.RefusedList) {
	p.Events.OnNode(v1.EventTypeWarning, "DevicePluginListRefused", "Device "+r.String())
}

// Routes returns the configuration of the routes about devices.
func (p *Placement) Routes() devices.Config {
	out := devices.Config{Plugins: p.Plugins, Drivers: p.Drivers.List, State: p.Store.State,
		Machine: p.Machine, Failures: p.Failures.Outlooks, Tell: p.Events.OnNode, Health: p.Drivers.Health.Of}
	if p.Cluster != nil {
		out.Published = p.Cluster.Devices
	}
	return out
}

// Placer says where the devices of claims are that are asked about.
func (p *Placement) Placer() fit.Placer {
	out := fit.Placer{Table: p.Settings.Placement.Attributes(), Machine: p.Machine}
	if p.Cluster != nil {
		out.Place = p.Cluster.Place
	}
	return out
}

// Health returns what statuses of pods say of the health of their devices, by container; nil: nothing.
func (p *Placement) Health() func(pod types.UID) map[string][]v1.ResourceStatus {
	return Health(p.Node, p.Store, p.Plugins.Inventory, p.Drivers.Health, p.Claims)
}

// Health is Placement's of a node whose devices and claims these are.
func Health(n node.Node, assigned *store.Store, inventory func() devicemanager.Inventory,
	drivers *health.Drivers, c Claims) func(pod types.UID) map[string][]v1.ResourceStatus {
	if !reportsHealth(n) {
		return nil
	}
	return func(pod types.UID) map[string][]v1.ResourceStatus {
		return health.ResourceStatuses(assigned.State().Pods[pod],
			health.Sources{Inventory: inventory(), Drivers: drivers}, c.cdi(pod))
	}
}

func reportsHealth(n node.Node) bool { return n.Enabled("ResourceHealthStatus") }

// cdi returns what names the devices of a pod's claims by their first CDI id, and tells which are
// prepared.
func (c Claims) cdi(pod types.UID) func(types.UID, claim.Device) (string, bool) {
	prepared := sync.OnceValue(func() (all []claims.Prepared) {
		if c.Manager != nil {
			all = c.Prepared(pod)
		}
		return all
	})
	return func(uid types.UID, device claim.Device) (string, bool) { // of a pod with claims
		for _, one := range prepared() {
			for _, d := range one.Devices {
				if one.UID == uid && d.Driver == device.Driver && d.Pool == device.Pool &&
					d.Name == device.Name {
					return strings.Join(d.CDI[:min(1, len(d.CDI))], ""), true
				}
			}
		}
		return "", false
	}
}
