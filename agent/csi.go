package agent

import (
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/agent/volume/csi"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/mailbox"
)

// csiDomain is the node's drivers of CSI volumes.
type csiDomain struct {
	*csi.Drivers
	changed *mailbox.Topic // what they say of the node
}

func newCSI(n node) (d csiDomain, err error) {
	d.changed = new(mailbox.Topic)
	d.Drivers, err = csi.New(csi.Config{Changed: d.changed.Publish, Registry: n.registry})
	return d, err
}

// handlers admit the drivers of the plugin registry.
func (d csiDomain) handlers() map[string]watcher.Handler {
	return map[string]watcher.Handler{registerapi.CSIPlugin: d.Handler()}
}
