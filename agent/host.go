package agent

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/neighbours"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/node/tunables"
	"github.com/numalet/numalet/agent/node/userns"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/upkeep/images"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// host is the machine and its container runtime, which a hollow node does not have.
type host struct {
	info      v1.NodeSystemInfo // without the runtime's version
	addresses *addresses.Addresses
	others    *neighbours.Neighbours
	client    *cri.Client
	runtime   cri.RuntimeStatus // when the agent started
	up        *runtimeup.Follower
	pleg      *lifecycle.PLEG // what the runtime has
	// short has the conditions of pressure, which evictions set.
	short   *eviction.Pressure
	evicted *eviction.Journal
	down    *shutdown.Announced // whether the machine goes down
	marks   *shutdown.Marks     // of pods that end for it
	images  *images.Records     // nil: whoever names an image may use it
	tree    *cgroups.Tree       // nil: cgroupsPerQOS is off
	users   *userns.Ranges
}

// reach connects to the runtime, and prepares what the node's pods need of the host.
func reach(ctx context.Context, n node, others *neighbours.Neighbours) (h host, err error) {
	cfg, k := n.cfg, &n.cfg.Kubelet
	h.others, h.short, h.down = others, new(eviction.Pressure), new(shutdown.Announced)
	h.info = hostinfo.Read(ctx, "/", n.bootID)
	h.addresses = addresses.New(ctx, addresses.Config{
		Node: n.name, Asked: cfg.NodeIPs(), Standalone: n.kube == nil,
		Provided: cfg.Cluster.Provider == "external",
	})
	if err = h.open(ctx, n); err != nil {
		return h, err
	}
	if h.client, err = cri.Connect(ctx, cri.Config{
		RuntimeEndpoint: k.ContainerRuntimeEndpoint,
		ImageEndpoint:   k.ImageServiceEndpoint,
		Timeout:         k.RuntimeRequestTimeout.Duration,
		Registry:        n.registry,
		Tracer:          n.trace.Provider(),
		Streaming:       n.cfg.Gates.Enabled("CRIListStreaming"),
		Foreign: func(annotations map[string]string) bool {
			return others.Has(annotations[cri.AnnotationRoot])
		},
	}); err != nil {
		return h, err
	}
	if h.runtime, err = h.client.Status(ctx); err != nil {
		return h, h.close(err)
	}
	h.up = newRuntimeUp(n, h.client, h.runtime)
	if h.pleg, err = lifecycle.New(lifecycle.Config{
		Client: h.client, Registry: n.registry,
	}); err != nil {
		return h, h.close(err)
	}
	klog.FromContext(ctx).Info("Connected to the container runtime", "name", h.runtime.Name,
		"version", h.runtime.Version, "endpoint", k.ContainerRuntimeEndpoint)
	if h.tree, err = newTree(ctx, n, h.client); err != nil {
		return h, h.close(err)
	}
	if err := tuneKernel(ctx, k); err != nil {
		return h, h.close(err)
	}
	return h, nil
}

// open reads the records of an earlier run that only a node with a host has.
func (h *host) open(ctx context.Context, n node) (err error) {
	if h.images, err = newImageRecords(ctx, n); err != nil {
		return err
	}
	if h.users, err = newUsers(ctx, n); err != nil {
		return err
	}
	h.evicted, err = eviction.OpenJournal(n.cfg.RootDir)
	if err = n.quarantined(ctx, err, "EvictionsQuarantined",
		"pods that were being evicted may run on"); err != nil {
		return err
	}
	h.marks, err = shutdown.OpenMarks(n.cfg.RootDir, n.bootID)
	return n.quarantined(ctx, err, "ShutdownPodsQuarantined",
		"pods that a shutdown was about to end may run on")
}

// newImageRecords opens the records of who may use which image.
func newImageRecords(ctx context.Context, n node) (*images.Records, error) {
	if !n.cfg.Gates.Enabled("KubeletEnsureSecretPulledImages") {
		return nil, nil
	}
	k := &n.cfg.Kubelet
	records, err := images.Open(images.Config{
		Dir: filepath.Join(n.cfg.RootDir, "image_manager"),
		Policy: images.Policy{Verify: k.ImagePullCredentialsVerificationPolicy,
			Allowed: k.PreloadedImagesVerificationAllowlist},
		Registry: n.registry,
	})
	return records, n.quarantined(ctx, err, "ImageRecordsQuarantined", "images that are on the node "+
		"count as preloaded: remove those that only pods with a login may use")
}

// newRuntimeUp follows whether the runtime is ready, and if the node has an object, its images.
func newRuntimeUp(n node, client *cri.Client, first cri.RuntimeStatus) *runtimeup.Follower {
	c := runtimeup.Config{
		Status: client.Status, MaxImages: int(*n.cfg.Kubelet.NodeStatusMaxImages),
	}
	if n.kube != nil {
		c.Images = func(ctx context.Context) ([]*runtimeapi.Image, error) {
			return client.Images().ListImages(ctx, nil)
		}
	}
	return runtimeup.New(c, first)
}

// newTree opens the cgroups with the driver that the runtime uses.
func newTree(ctx context.Context, n node, client *cri.Client) (*cgroups.Tree, error) {
	if !*n.cfg.Kubelet.CgroupsPerQOS {
		return nil, nil
	}
	driver := n.cfg.Kubelet.CgroupDriver
	asked, err := askDriver(ctx, client)
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
		Root: n.cfg.Kubelet.CgroupRoot, Driver: cgroups.Driver(driver), Registry: n.registry,
		MemoryQoS: memoryQoS(n.cfg),
	})
}

// askDriver asks three times, two seconds apart: a runtime that has just started may need them.
func askDriver(ctx context.Context, client *cri.Client) (driver string, err error) {
	for try := range 3 {
		if try > 0 && !await.For(ctx, 2*time.Second) {
			return "", ctx.Err()
		}
		driver, err = client.CgroupDriver(ctx)
		if err == nil || errors.Is(err, cri.ErrNoRuntimeConfig) {
			return driver, err
		}
	}
	return "", err
}

// lost says that nothing limits a pod, whose cgroup should be there while it runs.
func (h host) lost(pod *v1.Pod) string {
	if h.tree == nil {
		return ""
	}
	if missing := cgroups.MissingPod(h.tree, pod); missing != "" {
		return "The pod's cgroup " + missing + " is gone: the pod is stopped and made anew"
	}
	return ""
}

func memoryQoS(cfg *config.Config) cgroups.MemoryQoS {
	k := &cfg.Kubelet
	return cgroups.MemoryQoS{
		On: cfg.Gates.Enabled("MemoryQoS"),
		Reserve: k.MemoryReservationPolicy ==
			kubeletconfig.TieredReservationMemoryReservationPolicy,
		Throttle: ptr.Deref(k.MemoryThrottlingFactor, 0),
	}
}

// tuneKernel checks or sets the kernel's settings. An agent whose pods have a cgroup below another
// one is a guest on the machine: it changes nothing there.
func tuneKernel(ctx context.Context, k *kubeletconfig.KubeletConfiguration) error {
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

// state returns what keeps the node from taking pods now. The node's conditions and admission are
// made of it.
func (h host) state() nodestatus.State {
	now := time.Now()
	s := nodestatus.State{
		NotReady: h.up.Get().NotReady(now), Pressure: h.short.Conditions(), ShuttingDown: h.down.Now(),
	}
	if err := h.pleg.Healthy(now); err != nil {
		s.NotReady = append(s.NotReady, "PLEG is not healthy: "+err.Error())
	}
	return s
}

// describe adds what the host says to the node's facts.
func (h host) describe(n node) func(*nodestatus.Facts) {
	k := &n.cfg.Kubelet
	return func(f *nodestatus.Facts) {
		runtime := h.up.Get()
		f.Info, f.Runtime, f.State = h.info, runtime.Facts(), h.state()
		f.Info.ContainerRuntimeVersion = runtime.NodeVersion()
		f.Addresses = nodestatus.Addresses{
			All: h.addresses.OfNode(), Provided: n.cfg.Cluster.Provider == "external",
		}
		if *k.EnableServer {
			f.Port = k.Port
		}
	}
}

// nodeEnds returns what the node's object asks the host, the device plugins and the mounts.
func (h host) nodeEnds(n node, d deviceDomain, m mountDomain) nodeEnds {
	host := h.describe(n)
	e := nodeEnds{
		inventory: d.Inventory, offered: d.changed, supports: h.supports(),
		describe: func(f *nodestatus.Facts) { host(f); m.describe(f) },
		changed: []mailbox.Source{h.up.Changes(), h.addresses.Changes(), h.pleg.Health(),
			h.short.Changes(), h.down.Changes(), m.used},
	}
	if n.kube != nil {
		e.unanswered = n.kube.Reset
	}
	return e
}

// supports lists abilities of the host's runtime, and of its kernel.
func (h host) supports() supports {
	return supports{
		groupsPolicy: h.runtime.SupplementalGroupsPolicy,
		appArmor:     hostinfo.EnforcesAppArmor("/"),
		mountOptions: h.runtime.MountOptions, usersOnHostNetwork: h.runtime.UsersOnHostNetwork,
	}
}

// admissionEnds returns what admission asks on a host.
func (h host) admissionEnds(own clusterNode, d deviceDomain, c contentDomain) admissionEnds {
	e := admissionEnds{
		node: own, plugins: d.Plugins, claims: c.claims.admission(), state: h.state,
		changed: []mailbox.Source{d.changed, h.up.Changes(), h.pleg.Health(), h.short.Changes(),
			h.down.Changes(), c.claims.changed, c.needed},
		supports: h.supports(),
	}
	if own.Known != nil {
		e.changed = append(e.changed, own.Updates())
	}
	if c.needs != nil {
		e.needs = c.needs
	}
	return e
}
