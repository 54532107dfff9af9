// Package cluster speaks to the API server: it gets the node's pods and what these need, and tells of the node and
// its pods.
package cluster

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/attachments"
	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/cluster/nodes"
	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/cluster/podsource"
	"github.com/numalet/numalet/agent/cluster/slices"
	"github.com/numalet/numalet/agent/cluster/statuses"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
)

// Connect makes the client of the API server; nil without --kubeconfig.
func Connect(ctx context.Context, n node.Node, tracer trace.TracerProvider) (*kubeapi.Client, error) {
	if n.Settings.Cluster.Kubeconfig == "" {
		return nil, nil
	}
	return kubeapi.New(ctx, kubeapi.Config{
		Cluster: n.Settings.Cluster, Kubelet: &n.Settings.Kubelet, Node: n.Name,
		Gates: n.Settings.Gates, Registry: n.Registry, Tell: n.Events.OnNode, Tracer: tracer,
	})
}

// Cluster reads the node's object and pods of the API server, and writes the statuses of pods and the mirror pods.
type Cluster struct {
	// Object returns the node's object; nil as long as it is not known.
	Object func() *v1.Node

	node     node.Node
	client   *kubeapi.Client
	known    *nodes.Known
	identity nodes.Identity
	statuses *statuses.Statuses
	mirrors  *mirror.Mirrors
	written  *mailbox.Box[types.UID]
}

// Standalone returns the node's object on a node that is in no cluster: it is made up.
func Standalone(n node.Node) func() *v1.Node {
	object := nodes.Object(identityOf(n))
	return func() *v1.Node { return object }
}

// New makes the floor. The caller runs the client.
func New(n node.Node, client *kubeapi.Client) (*Cluster, error) {
	c := &Cluster{node: n, client: client, known: nodes.NewKnown(), identity: identityOf(n),
		written: mailbox.New[types.UID]()}
	c.Object = c.known.Get
	var err error
	if c.statuses, err = statuses.New(statuses.Config{
		Client: client.Main(), Registry: n.Registry, Tell: n.Events.About, Published: c.written.Put,
	}); err != nil {
		return nil, err
	}
	c.mirrors, err = mirror.New(mirror.Config{Client: client.Main(), Node: n.Name, Registry: n.Registry})
	return c, err
}

func identityOf(n node.Node) nodes.Identity {
	cfg, k := n.Settings, &n.Settings.Kubelet
	return nodes.Identity{
		Name: n.Name, Labels: cfg.Node.Labels, Taints: k.RegisterWithTaints,
		ProviderID: k.ProviderID, External: cfg.Cluster.Provider == "external",
		NodeIP: cfg.ProvidedIP(), Attach: *k.EnableControllerAttachDetach,
	}
}

// Updates is published when the node's object is another.
func (c *Cluster) Updates() mailbox.Source { return c.known.Updates() }

// Publishers tell the API server of the node's pods.
func (c *Cluster) Publishers() []pods.Publisher {
	return []pods.Publisher{
		{Name: "pod statuses", Status: c.statuses.Wrote, Delivered: c.statuses.Saw, Synced: c.statuses.Synced, Run: c.statuses.Run},
		{Name: "mirror pods", Status: c.mirrors.Wrote, Heard: c.mirrors.Heard, Delivered: c.mirrors.Saw, Run: c.mirrors.Run},
	}
}

// Pods are the node's pods at the API server.
func (c *Cluster) Pods() *pods.Cluster {
	return &pods.Cluster{
		Written: c.written, Newest: c.statuses.IsPublished,
		Feed: func(report func(complaint.Problem), running func() []cri.Pod, saw func([]*v1.Pod) []*v1.Pod) source.Feed {
			return podsource.New(podsource.Config{
				Client: c.client.Main(), Node: c.node.Name, Report: report, Saw: saw,
				Gates: c.node.Settings.Enabled, Restored: c.restored(), Running: running,
			})
		},
	}
}

// restored has a value when the API server was restored from a backup.
func (c *Cluster) restored() <-chan struct{} { return mailbox.Subscribe(c.client.Restored()) }

// Contents has what pods need of the API server besides their own objects: config maps and secrets, attachments,
// the places of claims' devices.
type Contents struct {
	Objects *objects.Objects
	Slices  *slices.Slices
	// Needed is published when pods that wait need something else.
	Needed *mailbox.Topic

	c           *Cluster
	attachments *attachments.Attachments
	arrived     *mailbox.Box[csi.Key]   // volumes to ask about again
	changed     *mailbox.Box[types.UID] // pods whose objects changed
}

// NewContents follows the objects of pods, as soon as their goroutines run (Node.Parts).
func NewContents(c *Cluster) (*Contents, error) {
	n := c.node
	o := &Contents{c: c, Needed: new(mailbox.Topic), arrived: mailbox.New[csi.Key](),
		changed: mailbox.New[types.UID]()}
	o.Objects = objects.New(objects.Config{
		Client:   c.client.Main(),
		Strategy: n.Settings.Kubelet.ConfigMapAndSecretChangeDetectionStrategy,
		Changed:  o.changed.Put, Node: c.Object, Tell: n.Events.Pod,
		Arrived: func(types.UID) { o.Needed.Publish() },
	})
	if err := o.Objects.Register(n.Registry); err != nil {
		return nil, err
	}
	o.attachments = attachments.New(attachments.Config{
		Client: c.client.Main(), Name: n.Name, Node: c.Object,
		Changed: mailbox.Subscribe(c.known.Updates()), Wake: o.arrived.Put,
	})
	o.Slices = slices.New(slices.Config{
		Client: c.client.Main(), Node: n.Name, Attributes: n.Settings.Placement.Attributes(),
		Machine: n.Machine, Restored: c.restored(),
	})
	return o, nil
}

// Volumes says what the API server says of volumes.
func (o *Contents) Volumes() *storage.Cluster {
	out := &storage.Cluster{Objects: o.Objects, Changed: o.c.Updates(), Attached: o.attachments.Attached}
	if !*o.c.node.Settings.Kubelet.EnableControllerAttachDetach {
		out.Attached = func(context.Context, csi.Attachment) (map[string]string, bool, error) {
			return nil, false, errAttaches
		}
		return out
	}
	out.DiskAttached = func(name string) bool {
		return attachments.Agreed(o.c.Object(), v1.UniqueVolumeName(name), true)
	}
	return out
}

// Claims says what the API server says of resource claims.
func (o *Contents) Claims() *placement.Cluster {
	return &placement.Cluster{
		Claim: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			return o.c.client.Main().ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Place: o.Slices.Place, Devices: o.devices, Object: o.c.Object,
	}
}

// devices lists the devices of the node's slices.
func (o *Contents) devices() (out []claim.Device) {
	for _, d := range o.Slices.All() {
		out = append(out, claim.Device{Driver: d.Driver, Pool: d.Pool, Name: d.Name, Place: d.Place})
	}
	return out
}
