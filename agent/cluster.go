package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/nodes"
	"github.com/numalet/numalet/agent/kubeapi/podsource"
	nodestatus "github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/runtimeup"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// newKube makes the client of the API server; nil without --kubeconfig.
func newKube(ctx context.Context, n node) (*kubeapi.Client, error) {
	if n.cfg.Cluster.Kubeconfig == "" {
		return nil, nil
	}
	return kubeapi.New(ctx, kubeapi.Config{
		Cluster: n.cfg.Cluster, Kubelet: &n.cfg.Kubelet, Node: n.name,
		Registry: n.registry, Tell: n.events.OnNode,
	})
}

// apiFeeds is the feed of pods that the API server has for the node; none on a standalone node.
// saw takes all pods and returns those that are to run; running are those that the runtime has.
func apiFeeds(n node, running func() []cri.Pod, report func(source.Problem),
	saw func([]*v1.Pod) []*v1.Pod) []source.Feed {
	if n.kube == nil {
		return nil
	}
	return []source.Feed{podsource.New(podsource.Config{
		Client: n.kube.Main(), Node: n.name, Report: report, Saw: saw,
		Restored: mailbox.Subscribe(n.kube.Restored()),
		Running:  func() []types.UID { return fromAPI(running()) },
	})}
}

// fromAPI are the pods of the API server that run, as their sandboxes tell.
func fromAPI(all []cri.Pod) (out []types.UID) {
	for _, p := range all {
		if p.Running() && len(p.Sandboxes) > 0 &&
			p.Sandboxes[0].Annotations[source.AnnotationSource] == source.APISource {
			out = append(out, p.UID)
		}
	}
	return out
}

// flaws refuses pods of the API server that are against a rule that the node relies on. Manifests
// are refused when they are read.
func flaws(a decide.Attempt) *decide.Refusal {
	if a.Pod.Annotations[source.AnnotationSource] != source.APISource {
		return nil
	}
	if why := source.Flaw(a.Pod); why != "" {
		return &decide.Refusal{Reason: source.FailedValidation, Message: why}
	}
	return nil
}

// followRuntime follows whether the runtime is ready and, for the node's object, its images.
func followRuntime(n node) *runtimeup.Follower {
	c := runtimeup.Config{
		Status: n.client.Status, MaxImages: int(*n.cfg.Kubelet.NodeStatusMaxImages),
	}
	if n.kube != nil {
		c.Images = func(ctx context.Context) ([]*runtimeapi.Image, error) {
			return n.client.Images().ListImages(ctx, nil)
		}
	}
	return runtimeup.New(c, n.runtime.RuntimeStatus)
}

// ownNode is the node's object, and what keeps it at the API server.
type ownNode struct {
	// object is nil as long as it is not known; on a standalone node it is what it would be.
	object func() *v1.Node
	// reread has object be what the API server has now.
	reread func(context.Context)
	parts  []part
}

func newOwnNode(n node, p parts, l *links) ownNode {
	if n.kube == nil {
		made := nodes.Object(nodeIdentity(n.cfg, n.name))
		return ownNode{
			object: func() *v1.Node { return made }, reread: func(context.Context) {},
		}
	}
	owned, err := nodes.OpenOwned(n.cfg.RootDir, n.cfg.DevicePlugins.Graces.Capacity)
	if err != nil {
		klog.Background().Error(err, "Which resources are ours is not known")
	}
	k := &n.cfg.Kubelet
	gather := nodeFacts(n, p, owned)
	facts := func() nodestatus.Facts {
		p.metrics.Registering() // the first time
		return gather()
	}
	kept := nodes.New(nodes.Config{
		Main: n.kube.Main(), Heartbeats: n.kube.Heartbeats(),
		Identity: nodeIdentity(n.cfg, n.name), Register: *k.RegisterNode,
		Periods: nodes.Periods{
			Update: k.NodeStatusUpdateFrequency.Duration,
			Report: k.NodeStatusReportFrequency.Duration,
			Lease:  time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		},
		Facts:   facts,
		Changed: factsChanged(n, p, l),
		Wrote: func(f nodestatus.Facts) {
			owned.Wrote(f.Devices)
			p.metrics.NodeWritten(len(f.NotReady) == 0)
		},
		Tell: n.events.OnNode, Unanswered: n.kube.Reset, Restored: n.kube.Restored().Publish,
		Again: mailbox.Subscribe(n.kube.Restored()),
	})
	n.host.addresses.Follow(kept.Node)
	n.events.Follow(kept.Node)
	zones := newTopology(n, p, kept, &l.inventory)
	return ownNode{kept.Node, kept.Reread, []part{
		{"node", kept.Run}, {"NodeResourceTopology", zones.Run},
	}}
}

// factsChanged has a value when what the node's status is made of may be another.
func factsChanged(n node, p parts, l *links) <-chan struct{} {
	return mailbox.Subscribe(&l.inventory, n.hardware.Changes(), n.runtime.up.Changes(),
		n.host.addresses.Changes(), p.observer.Health())
}

func nodeIdentity(cfg *config.Config, name string) nodes.Identity {
	k := &cfg.Kubelet
	return nodes.Identity{
		Name: name, Labels: cfg.Node.Labels, Taints: k.RegisterWithTaints,
		ProviderID: k.ProviderID, External: cfg.Cluster.Provider == "external",
		NodeIP: providedIP(cfg), Attach: *k.EnableControllerAttachDetach,
	}
}

// nodeFacts gathers what the node's status is made of.
func nodeFacts(n node, p parts, owned *nodes.Owned) func() nodestatus.Facts {
	info := systemInfo(context.Background(), "/", n)
	declared := nodestatus.DeclaredFeatures(n.cfg.Gates)
	var port int32
	if *n.cfg.Kubelet.EnableServer {
		port = n.cfg.Kubelet.Port
	}
	return func() nodestatus.Facts {
		h, now, state := n.hardware.Get(), time.Now(), n.runtime.up.Get()
		f := nodestatus.Facts{
			Capacity: h.Capacity, Allocatable: h.Allocatable,
			Devices: owned.Devices(p.plugins.Inventory()), Info: info, Port: port,
			Runtime: nodestatus.Runtime{
				Images: state.Images, Handlers: runtimeHandlers(state.Handlers),
				SupplementalGroupsPolicy: state.SupplementalGroupsPolicy,
			},
			Addresses: nodestatus.Addresses{All: n.host.addresses.OfNode(),
				Provided: n.cfg.Cluster.Provider == "external"},
			State: nodestatus.State{NotReady: state.NotReady(now)}, DeclaredFeatures: declared,
			Placement: nodestatus.Placement{Rules: n.rules},
		}
		if h.CPUs != nil {
			f.Placement.IsolatedCPUs = h.CPUs.Isolated().Size()
		}
		f.Info.ContainerRuntimeVersion = state.Name + "://" + plainVersion(state.Version)
		if err := p.observer.Healthy(now); err != nil {
			f.NotReady = append(f.NotReady, "PLEG is not healthy: "+err.Error())
		}
		return f
	}
}

// providedIP is what a cloud controller manager is to choose the addresses by; empty: it may choose.
func providedIP(cfg *config.Config) string {
	asked := cfg.NodeIPs()
	if len(asked) == 0 || asked[0].IsUnspecified() {
		return ""
	}
	var out []string
	for _, ip := range asked {
		out = append(out, ip.String())
	}
	return strings.Join(out, ",")
}

func runtimeHandlers(of []cri.RuntimeHandler) []v1.NodeRuntimeHandler {
	out := make([]v1.NodeRuntimeHandler, 0, len(of))
	for _, h := range of {
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts,
				UserNamespaces:          &h.UserNamespaces,
			}})
	}
	slices.SortFunc(out, func(a, b v1.NodeRuntimeHandler) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// kubeParts are those that run from the start on a node of a cluster.
func kubeParts(n node) []part {
	if n.kube == nil {
		return nil
	}
	return []part{{"API server client", n.kube.Run}}
}
