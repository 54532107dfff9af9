package agent

import (
	"context"
	"errors"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/placement/released"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
)

// deviceDomain is the node's device plugins, and its drivers of resource claims and of
// CSI volumes, which register in the same directory.
type deviceDomain struct {
	*devicemanager.Plugins
	changed *mailbox.Topic // what they offer
	drivers driverDomain
	csi     csiDomain
	// failures remembers what was done about failed devices.
	failures *health.FailureBook
}

// newDevices makes the device manager, with what earlier runs of the agent knew.
func newDevices(ctx context.Context, n node) (d deviceDomain, err error) {
	d.changed = new(mailbox.Topic)
	if d.drivers, err = newDrivers(ctx, n); err != nil {
		return d, err
	}
	if d.csi, err = newCSI(n); err != nil {
		return d, err
	}
	if d.failures, err = openFailures(ctx, n); err != nil {
		return d, err
	}
	cordons, err := cordon.Open(filepath.Join(n.cfg.RootDir, cordon.FileName))
	if err = n.quarantined(ctx, err, "CordonedDevicesQuarantined",
		"no device is cordoned now: cordon them again"); err != nil {
		return d, err
	}
	lists, err := recall.Open(filepath.Join(n.cfg.RootDir, recall.FileName))
	if err = n.quarantined(ctx, err, "DeviceListsQuarantined",
		"devices count when their plugins have registered"); err != nil {
		return d, err
	}
	d.Plugins, err = devicemanager.New(devicemanager.Config{
		Dirs: devicemanager.Dirs{
			Plugins:  deviceDir(n.cfg.RootDir),
			Registry: filepath.Join(n.cfg.RootDir, watcher.Registry),
			Others: map[string]watcher.Handler{
				registerapi.DRAPlugin: d.drivers.Handler(), registerapi.CSIPlugin: d.csi.Handler(),
			},
		},
		NodeIDs: n.hardware.Get().Machine.NodeSet(), Registry: n.registry,
		Before: devicemanager.Before{Lists: lists, Resources: handover.KnownResources(
			n.store.State(), deviceDir(n.cfg.RootDir))},
		Cordons:   cordons,
		Deadlines: n.cfg.DevicePlugins.Deadlines, Graces: n.cfg.DevicePlugins.Graces,
		Strict: n.cfg.DevicePlugins.Strict, Changed: d.changed.Publish,
		Refused: func(r devicemanager.RefusedList) {
			n.events.OnNode(v1.EventTypeWarning, "DevicePluginListRefused", "Device "+r.String())
		},
	})
	return d, err
}

// quarantined tells of a file that was moved aside since it was unusable, and what follows. Other
// errors are returned.
func (n node) quarantined(ctx context.Context, err error, reason, then string) error {
	if !errors.Is(err, files.ErrUnusable) {
		return err
	}
	klog.FromContext(ctx).Error(err, "A file of the agent is not used", "then", then)
	n.events.OnNode(v1.EventTypeWarning, reason, err.Error()+"; "+then)
	return nil
}

// deviceDir returns the directory of the device plugins' sockets.
func deviceDir(root string) string {
	return filepath.Join(root, filepath.Base(filepath.Clean(pluginapi.DevicePluginPath)))
}

// notifier tells plugins which devices were released; settled is called when they are free.
func (d deviceDomain) notifier(n node, settled func()) *released.Notifier {
	return released.New(released.Config{
		Store: n.store, Plugins: d.Plugins, Settled: settled, Tell: n.events.OnNode,
		Changed: mailbox.Subscribe(n.store.Changes(), d.changed),
	})
}

// routes returns the configuration of the routes about devices.
func (d deviceDomain) routes(n node) devices.Config {
	return devices.Config{Plugins: d.Plugins, Drivers: d.drivers.List, State: n.store.State,
		Machine:  func() *topology.Machine { return n.hardware.Get().Machine },
		Failures: d.failures.Outlooks, Tell: n.events.OnNode}
}
