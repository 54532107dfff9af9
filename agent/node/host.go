package node

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/neighbours"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/node/tunables"
	"github.com/numalet/numalet/agent/node/userns"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// Host is the machine and its container runtime, which a hollow node does not have.
type Host struct {
	Node
	Info      v1.NodeSystemInfo // without the runtime's version
	Addresses *addresses.Addresses
	Others    *neighbours.Neighbours
	Client    *cri.Client
	Runtime   cri.RuntimeStatus // when the agent started
	Up        *runtimeup.Follower
	Pressure  *eviction.Pressure  // set by evictions
	Down      *shutdown.Announced // whether the machine goes down
	Tree      *cgroups.Tree       // nil: cgroupsPerQOS is off
	Users     *userns.Ranges
}

// Links says how a host is connected: its tracer, and whether it is in a cluster.
type Links struct {
	Tracer    trace.TracerProvider
	Clustered bool // the node is in a cluster
}

// Reach connects to the runtime, and prepares what the node's pods need of the host.
func Reach(ctx context.Context, n Node, l Links) (*Host, error) {
	cfg, k := n.Settings, &n.Settings.Kubelet
	h := &Host{Node: n, Pressure: new(eviction.Pressure), Down: new(shutdown.Announced)}
	h.warn(ctx)
	var err error
	if h.Others, err = neighbours.New(neighbours.Config{
		Root: cfg.RootDir, Tell: func(message string) {
			klog.FromContext(ctx).Error(nil, message)
			n.Events.OnNode(v1.EventTypeWarning, neighbours.ReasonShared, message)
		},
	}); err != nil {
		return nil, err
	}
	h.Info = hostinfo.Read(ctx, "/", n.BootID)
	h.Addresses = addresses.New(ctx, addresses.Config{
		Node: n.Name, Asked: cfg.NodeIPs(), Standalone: !l.Clustered,
		Provided: cfg.Cluster.Provider == "external",
	})
	if h.Users, err = newUsers(ctx, h.Node); err != nil {
		return nil, err
	}
	if h.Client, err = cri.Connect(ctx, cri.Config{
		RuntimeEndpoint: k.ContainerRuntimeEndpoint,
		ImageEndpoint:   k.ImageServiceEndpoint,
		Timeout:         k.RuntimeRequestTimeout.Duration,
		Registry:        n.Registry,
		Tracer:          l.Tracer,
		Streaming:       h.Enabled("CRIListStreaming"),
		Foreign: func(annotations map[string]string) bool {
			return h.Others.Has(annotations[cri.AnnotationRoot])
		},
	}); err != nil {
		return nil, err
	}
	if err := h.prepare(ctx, l); err != nil {
		return nil, h.Close(err)
	}
	return h, nil
}

// Close ends what Reach began, and returns err with what went wrong then.
func (h *Host) Close(err error) error { return errors.Join(err, h.Client.Close()) }

// warn tells of hosts on which pods are limited or protected less than elsewhere.
func (h *Host) warn(ctx context.Context) {
	if !hostinfo.Unified() {
		h.Events.OnNode(v1.EventTypeWarning, "CgroupV1", "cgroup v1 detected: it is deprecated in "+
			"Kubernetes, and much of what limits pods is cgroup v2's alone; migrate to cgroup v2")
	}
	err := hostinfo.WarnOfSwap(hostinfo.Swaps, h.Settings.RootDir, mount.New(""), h.Events.OnNode)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Memory-backed volumes may be swapped to disk")
	}
}

// newUsers gives pods their user namespaces.
func newUsers(ctx context.Context, n Node) (*userns.Ranges, error) {
	k := &n.Settings.Kubelet
	perPod := uint32(*k.UserNamespaces.IDsPerPod)
	host, err := userns.Host(ctx, perPod, int(k.MaxPods))
	if err != nil {
		return nil, err
	}
	return userns.New(userns.Config{
		Pods: filepath.Join(n.Settings.RootDir, "pods"), Host: host, PerPod: perPod,
		Begin: rand.IntN(math.MaxInt),
	})
}

// prepare asks the runtime what it is, and makes the host ready for pods.
func (h *Host) prepare(ctx context.Context, l Links) (err error) {
	if h.Runtime, err = h.Client.Status(ctx); err != nil {
		return err
	}
	h.Up = h.newUp(l)
	klog.FromContext(ctx).Info("Connected to the container runtime", "name", h.Runtime.Name,
		"version", h.Runtime.Version, "endpoint", h.Settings.Kubelet.ContainerRuntimeEndpoint)
	if h.Tree, err = h.newTree(ctx); err != nil {
		return err
	}
	return h.tuneKernel(ctx)
}

// newUp follows whether the runtime is ready, and if the node has an object, its images.
func (h *Host) newUp(l Links) *runtimeup.Follower {
	c := runtimeup.Config{
		Status: h.Client.Status, MaxImages: int(*h.Settings.Kubelet.NodeStatusMaxImages),
	}
	if l.Clustered {
		c.Images = func(ctx context.Context) ([]*runtimeapi.Image, error) {
			return h.Client.Images().ListImages(ctx, nil)
		}
	}
	return runtimeup.New(c, h.Runtime)
}

// newTree opens the cgroups with the driver that the runtime uses.
func (h *Host) newTree(ctx context.Context) (*cgroups.Tree, error) {
	k := &h.Settings.Kubelet
	if !*k.CgroupsPerQOS {
		return nil, nil
	}
	driver := k.CgroupDriver
	asked, err := askDriver(ctx, h.Client.CgroupDriver)
	switch {
	case err == nil:
		driver = asked
	case errors.Is(err, cri.ErrNoRuntimeConfig):
		klog.FromContext(ctx).Info("The runtime does not tell its cgroup driver",
			"using", driver, "from", "cgroupDriver")
	default:
		return nil, err
	}
	return cgroups.New(cgroups.Config{
		Root: k.CgroupRoot, Driver: cgroups.Driver(driver), Registry: h.Registry, MemoryQoS: h.MemoryQoS(),
	})
}

// askDriver asks three times, two seconds apart: a runtime that has just started may need them.
func askDriver(ctx context.Context, ask func(context.Context) (string, error)) (driver string, err error) {
	for try := range 3 {
		if try > 0 && !await.For(ctx, 2*time.Second) {
			return "", ctx.Err()
		}
		driver, err = ask(ctx)
		if err == nil || errors.Is(err, cri.ErrNoRuntimeConfig) {
			return driver, err
		}
	}
	return "", err
}

// MemoryQoS says what cgroup v2 is to do for the memory of pods.
func (h *Host) MemoryQoS() cgroups.MemoryQoS {
	k := &h.Settings.Kubelet
	return cgroups.MemoryQoS{
		On: h.Enabled("MemoryQoS"),
		Reserve: k.MemoryReservationPolicy ==
			kubeletconfig.TieredReservationMemoryReservationPolicy,
		Throttle: ptr.Deref(k.MemoryThrottlingFactor, 0),
	}
}

// tuneKernel checks or sets the kernel's settings. An agent whose pods have a cgroup below another
// one is a guest on the machine: it changes nothing there.
func (h *Host) tuneKernel(ctx context.Context) error {
	k := &h.Settings.Kubelet
	switch {
	case !*k.CgroupsPerQOS: // containers are not the machine's
	case k.ProtectKernelDefaults:
		return tunables.Check(sysctl.New())
	case path.Clean("/"+k.CgroupRoot) == "/":
		if err := tunables.Set(sysctl.New()); err != nil {
			klog.FromContext(ctx).Error(err, "Pods may find another kernel than elsewhere")
		}
	}
	return nil
}

// Lost says that nothing limits a running pod since its cgroup is gone; "": all is well.
func (h *Host) Lost(pod *v1.Pod) string {
	if h.Tree == nil {
		return ""
	}
	if missing := cgroups.MissingPod(h.Tree, pod); missing != "" {
		return "The pod's cgroup " + missing + " is gone: the pod is stopped and made anew"
	}
	return ""
}

// State returns what of the host keeps the node from taking pods now.
func (h *Host) State() nodestatus.State {
	return nodestatus.State{
		NotReady: h.Up.Get().NotReady(time.Now()), Pressure: h.Pressure.Conditions(), ShuttingDown: h.Down.Now(),
	}
}

// Changes lists what is published when State or Describe is another.
func (h *Host) Changes() []mailbox.Source {
	return []mailbox.Source{h.Up.Changes(), h.Addresses.Changes(), h.Pressure.Changes(), h.Down.Changes()}
}

// Describe adds what the host says to the node's facts, without its state.
func (h *Host) Describe(f *nodestatus.Facts) {
	k, runtime := &h.Settings.Kubelet, h.Up.Get()
	f.Info, f.Runtime = h.Info, runtime.Facts()
	f.Info.ContainerRuntimeVersion = runtime.NodeVersion()
	f.Addresses = nodestatus.Addresses{
		All: h.Addresses.OfNode(), Provided: h.Settings.Cluster.Provider == "external",
	}
	if *k.EnableServer {
		f.Port = k.Port
	}
}

// Supports lists abilities that not every runtime or kernel has.
type Supports struct{ GroupsPolicy, AppArmor, MountOptions, UsersOnHostNetwork bool }

// Supports lists abilities of the host's runtime, and of its kernel.
func (h *Host) Supports() Supports {
	return Supports{
		GroupsPolicy: h.Runtime.SupplementalGroupsPolicy,
		AppArmor:     hostinfo.EnforcesAppArmor("/"),
		MountOptions: h.Runtime.MountOptions, UsersOnHostNetwork: h.Runtime.UsersOnHostNetwork,
	}
}

// Declared returns the features that a node with these settings and abilities declares.
func (i Identity) Declared(can Supports) []string {
	return nodestatus.DeclaredFeatures(i.Settings.Gates, types.RuntimeFeatures{
		MountOptions: can.MountOptions, UserNamespacesHostNetwork: can.UsersOnHostNetwork})
}

// AdoptUsers gives running pods the user ids that their sandboxes have.
func (h *Host) AdoptUsers(ctx context.Context, running []cri.Pod) {
	log := klog.FromContext(ctx)
	for _, one := range h.Users.Adopt(running) {
		log.Info("The user ids of a running pod are taken from its sandbox, since its file could "+
			"not be used", "podUID", one.Pod, "first", one.IDs.First, "count", one.IDs.Length,
			"file", one.Was)
		if one.Err != nil {
			log.Error(one.Err, "The file of a pod's user ids is not written again", "podUID", one.Pod)
		}
	}
}
