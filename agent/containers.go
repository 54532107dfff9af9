package agent

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/userns"
	"github.com/numalet/numalet/agent/pods/actuator"
	"github.com/numalet/numalet/agent/upkeep/images/provider"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// actuator makes what turns the actions of workers into calls.
func (h host) actuator(n node, d deviceDomain, r resourceDomain, c contentDomain) (
	*actuator.Actuator, error) {
	settings, err := nodeSettings(n, h)
	if err != nil {
		return nil, err
	}
	images, err := newImages(n, h, c)
	if err != nil {
		return nil, err
	}
	cfg := actuator.Config{
		Runtime: h.client.Runtime(), Images: images, Observer: h.pleg, Volumes: c.volumes,
		Cgroups: h.tree, Resources: r.loop, Plugins: d.Plugins, State: n.store.State,
		Hardware: n.hardware.Get, Node: settings,
		Tell: actuator.Tell{
			Event: n.events.Pod, Node: n.events.OnNode, Container: n.events.Container,
			Started: n.metrics.Started, Hooked: n.metrics.Hooked,
		},
	}
	if c.objects != nil {
		cfg.Objects, cfg.Claims = c.objects, c.claims
	}
	return actuator.New(cfg), nil
}

// nodeSettings returns what the configuration and the host say of every container.
func nodeSettings(n node, h host) (s actuator.Node, err error) {
	k := &n.cfg.Kubelet
	s = actuator.Node{
		Root: h.others.Own(), Logs: logfiles.PlaceAt(k.PodLogsDir),
		ClusterDomain: k.ClusterDomain,
		Network: actuator.Network{
			IPs: h.addresses.IPs, Problem: func() string { return h.up.Get().NetworkProblem() },
		},
		Facts: cri.Facts{NodeName: n.name},
		Security: cri.SecurityOptions{
			SeccompDefault: *k.SeccompDefault,
			SeccompRoot:    filepath.Join(n.cfg.RootDir, "seccomp"),
			Masked:         hostinfo.ThermalPaths("/"),
		},
		Users:    h.users,
		Handlers: h.runtime.Handlers, ImageHandlers: n.cfg.Enabled("RuntimeClassInImageCriApi"),
		HTTP2: n.cfg.Enabled("H2CContainerProbe"), Sysctls: k.DefaultPodSysctls,
	}
	s.DNS, err = readDNS(n, h.addresses.IPv6())
	return s, err
}

// newImages pulls images for containers.
func newImages(n node, h host, c contentDomain) (*cri.Images, error) {
	k := &n.cfg.Kubelet
	cfg := cri.ImagesConfig{
		Serialize:   *k.SerializeImagePulls,
		MaxParallel: int(ptr.Deref(k.MaxParallelImagePulls, 0)),
		QPS:         float32(*k.RegistryPullQPS), Burst: int(k.RegistryBurst),
		Pulled: n.metrics.Pulled, Asked: n.metrics.Asked,
	}
	if h.images != nil {
		cfg.Records = h.images
	}
	if file := n.cfg.Cluster.CredentialProviderConfig; file != "" {
		pc := provider.Config{File: file, Dir: n.cfg.Cluster.CredentialProviderDir,
			Registry: n.registry}
		if c.objects != nil {
			pc.Accounts = c.objects
		}
		providers, err := provider.Open(pc)
		if err != nil {
			return nil, err
		}
		cfg.Logins = providers.Logins
	}
	return cri.NewImages(h.client.Images(), cfg), nil
}

// newUsers gives pods their user namespaces.
func newUsers(ctx context.Context, n node) (*userns.Ranges, error) {
	perPod := uint32(*n.cfg.Kubelet.UserNamespaces.IDsPerPod)
	host, err := userns.Host(ctx, perPod, int(n.cfg.Kubelet.MaxPods))
	if err != nil {
		return nil, err
	}
	return userns.New(userns.Config{
		Pods: filepath.Join(n.cfg.RootDir, "pods"), Host: host, PerPod: perPod,
		Begin: rand.IntN(math.MaxInt),
	})
}

// adoptUsers gives running pods the user ids that their sandboxes have.
func (h host) adoptUsers(ctx context.Context) {
	log := klog.FromContext(ctx)
	for _, one := range h.users.Adopt(h.pleg.All()) {
		log.Info("The user ids of a running pod are taken from its sandbox, since its file could "+
			"not be used", "podUID", one.Pod, "first", one.IDs.First, "count", one.IDs.Length,
			"file", one.Was)
		if one.Err != nil {
			log.Error(one.Err, "The file of a pod's user ids is not written again", "podUID", one.Pod)
		}
	}
}

// readDNS reads resolvConf; "" stands for no host configuration at all.
func readDNS(n node, ipv6 bool) (cri.DNS, error) {
	k := &n.cfg.Kubelet
	out := cri.DNS{Servers: k.ClusterDNS, Domain: k.ClusterDomain, IPv6: ipv6}
	if *k.ResolverConfig == "" {
		return out, nil
	}
	text, err := files.ReadNamed(*k.ResolverConfig, 1<<20)
	if err != nil {
		return out, fmt.Errorf("read resolvConf: %w; name the right file with resolvConf "+
			"(--resolv-conf)", err)
	}
	out.Host, err = cri.ParseResolvConf(bytes.NewReader(text))
	if problem := out.HostProblem(*k.ResolverConfig); problem != "" {
		n.events.OnNode(v1.EventTypeWarning, "CheckLimitsForResolvConf", problem)
	}
	return out, err
}
