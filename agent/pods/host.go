package pods

import (
	"bytes"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/pods/actuator"
	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/pods/probe"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
)

// HostConfig has what the ends of a node with a host are made of. All fields are required but Objects.
type HostConfig struct {
	*placement.Placement
	PLEG      *lifecycle.PLEG
	Resources placement.Resources
	Storage   *storage.Storage
	Images    *cri.Images
	Objects   actuator.Objects // nil: there is no API server
	Metrics   HostMetrics
}

// HostMetrics count what containers are made of; *metrics.Metrics does. None of its methods blocks.
type HostMetrics interface {
	Started(pod *v1.Pod, c *v1.Container, err error)
	Hooked(fallback bool, err error)
}

// Prober probes containers.
type Prober struct {
	*probe.Prober
	woken *mailbox.Box[types.UID] // pods whose probes found something else
}

// NewProber makes what probes containers of a host.
func NewProber(h *node.Host) (p Prober, err error) {
	p.woken = mailbox.New[types.UID]()
	p.Prober, err = probe.New(probe.Config{
		Ask: handler.New(handler.Config{
			Runtime: h.Client.Runtime(), Version: version.Short(),
			HTTP2: h.Enabled("H2CContainerProbe"),
			TLS:   h.Enabled("GRPCContainerProbeTLS"),
		}).Probe,
		Tell: h.Events.Container, Wake: p.woken.Put,
	})
	return p, err
}

// Parts probe, and wake the workers of pods whose probes found something else.
func (p Prober) Parts(wake func(types.UID)) []part.Part {
	return []part.Part{part.Of("probes", p.Run), part.Each("results of probes", p.woken, wake)}
}

// OnHost returns the ends of a node with a host.
func OnHost(c HostConfig, probes Prober) (Ends, error) {
	settings, err := containers(c.Host)
	if err != nil {
		return Ends{}, err
	}
	cfg := actuator.Config{
		Runtime: c.Client.Runtime(), Images: c.Images, Observer: c.PLEG, Volumes: c.Storage.Volumes,
		Cgroups: c.Tree, Resources: c.Resources.Loop, Plugins: c.Plugins, State: c.Store.State,
		Hardware: c.Hardware.Get, Node: settings,
		Tell: actuator.Tell{
			Event: c.Events.Pod, Node: c.Events.OnNode, Container: c.Events.Container,
			Started: c.Metrics.Started, Hooked: c.Metrics.Hooked,
		},
	}
	if c.Objects != nil {
		cfg.Objects, cfg.Claims = c.Objects, c.Claims
	}
	return Ends{
		Runtime: c.PLEG, Actuator: actuator.New(cfg), Probes: probes,
		Volumes: c.Storage.Volumes, Records: c.Storage.Volumes.Records,
		Failed: c.Failures.Condemned, Lost: c.Lost, Holds: c.Claims.Holds,
		Resized: c.Resources.Loop.Follow,
	}, nil
}

// containers returns what the configuration and the host say of every container.
func containers(h *node.Host) (s actuator.Node, err error) {
	k := &h.Settings.Kubelet
	s = actuator.Node{
		Root: h.Others.Own(), Logs: logfiles.PlaceAt(k.PodLogsDir),
		ClusterDomain: k.ClusterDomain,
		Network: actuator.Network{
			IPs: h.Addresses.IPs, Problem: func() string { return h.Up.Get().NetworkProblem() },
		},
		Facts: cri.Facts{NodeName: h.Name},
		Security: cri.SecurityOptions{
			SeccompDefault: *k.SeccompDefault,
			SeccompRoot:    filepath.Join(h.Settings.RootDir, "seccomp"),
			Masked:         hostinfo.ThermalPaths("/"),
		},
		Users:    h.Users,
		Handlers: h.Runtime.Handlers, ImageHandlers: h.Enabled("RuntimeClassInImageCriApi"),
		HTTP2: h.Enabled("H2CContainerProbe"), Sysctls: k.DefaultPodSysctls,
	}
	s.DNS, err = readDNS(h)
	return s, err
}

// readDNS reads resolvConf; "" stands for no host configuration at all.
func readDNS(h *node.Host) (cri.DNS, error) {
	k := &h.Settings.Kubelet
	out := cri.DNS{Servers: k.ClusterDNS, Domain: k.ClusterDomain, IPv6: h.Addresses.IPv6()}
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
		h.Events.OnNode(v1.EventTypeWarning, "CheckLimitsForResolvConf", problem)
	}
	return out, err
}
