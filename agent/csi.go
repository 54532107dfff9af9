package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/agent/kubeapi/objects"
	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/agent/volume/csi"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/oneline"
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

// mountDomain is the volumes of the node's pods that CSI drivers make.
type mountDomain struct {
	*csi.Mounts
	used   *mailbox.Topic          // which volumes are in use
	waking *mailbox.Box[types.UID] // pods that waited for a driver
}

// newMounts finds what is mounted. It must be made before the node's status is written, which says
// which volumes are in use.
func newMounts(ctx context.Context, n node, drivers csiDomain, o *objects.Objects) (
	d mountDomain, err error) {
	root, err := filepath.EvalSymlinks(n.cfg.RootDir)
	if err != nil {
		return d, err
	}
	d.used, d.waking = new(mailbox.Topic), mailbox.New[types.UID]()
	cfg := csi.MountsConfig{Drivers: drivers.Drivers, Root: root, Node: n.name, Used: d.used.Publish,
		Wake: d.waking.Put}
	if o != nil {
		cfg.Objects, cfg.Attached = o, attachments{n.kube.Main(), n.name}.attached
	}
	d.Mounts = csi.NewMounts(ctx, cfg)
	return d, nil
}

// follow has volumes unstaged, and pods looked at whose driver has registered.
func (d mountDomain) follow(drivers csiDomain, again func(types.UID)) []part {
	news := mailbox.Subscribe(drivers.changed)
	return []part{{"CSI volumes", d.Run}, {"pods that wait for drivers", func(ctx context.Context) error {
		return d.waking.Each(ctx, again)
	}}, {"news of drivers", func(ctx context.Context) error {
		for await.On(ctx, news) {
			d.DriversChanged()
		}
		return nil
	}}}
}

// attachments reads the attachments of volumes to this node.
type attachments struct {
	client kubernetes.Interface
	node   string
}

// attached returns what the attacher says of a volume. The errors are the kubelet's.
func (a attachments) attached(ctx context.Context, driver, handle string) (
	map[string]string, bool, error) {
	name := csi.Key{Driver: driver, Handle: handle}.AttachmentName(a.node)
	found, err := a.client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("volume %s has GET error for volume attachment %s: %w", handle,
			name, requests.Short(err))
	case found.DeletionTimestamp != nil:
		return nil, false, errors.New("volume attachment is being deleted")
	case found.Status.Attached:
		return found.Status.AttachmentMetadata, true, nil
	case found.Status.AttachError != nil:
		return nil, false, errors.New(oneline.Of(found.Status.AttachError.Message))
	}
	return nil, false, nil
}
