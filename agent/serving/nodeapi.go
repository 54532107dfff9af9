package serving

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/server/access"
	"github.com/numalet/numalet/agent/serving/server/certificates"
	"github.com/numalet/numalet/agent/serving/server/checkpoint"
	"github.com/numalet/numalet/agent/serving/server/debug"
	"github.com/numalet/numalet/agent/serving/server/logs"
	"github.com/numalet/numalet/agent/serving/server/nodelogs"
	"github.com/numalet/numalet/agent/serving/server/streaming"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// systemLogs is the host's folder of logs.
const systemLogs = "/var/log"

// Answers of endpoints that the configuration switches off.
const (
	noDebug    = "Debug endpoints are disabled."
	noLogs     = "logs endpoint is disabled."
	noProfiles = "profiling endpoint is disabled."
	noFlags    = "flags endpoint is disabled."
)

// nodeAPI is the HTTPS server of the node, which kubectl and the API server ask. There is no listener
// if it is switched off, or if no request could be allowed: the log says so.
func (s *Serving) nodeAPI(ctx context.Context) ([]server.Listener, error) {
	k := &s.c.Settings.Kubelet
	if !*k.EnableServer {
		return nil, nil
	}
	c := s.access()
	allowed, err := access.New(c)
	if errors.Is(err, access.ErrNobody) {
		klog.FromContext(ctx).Info("The node API (port 10250) is not served", "why", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	source, err := s.certificate(ctx)
	if err != nil {
		return nil, err
	}
	tls, err := certificates.TLS(k, source, allowed.ClientCAs)
	if err != nil {
		return nil, err
	}
	routes := append(s.nodeRoutes(), s.open...)
	if s.c.Settings.Gates.Enabled("ComponentStatusz") {
		routes = append(routes, debug.Status(patterns(routes))...)
	}
	address := net.JoinHostPort(k.Address, strconv.Itoa(int(k.Port)))
	if warning := access.Warning(c); warning != "" {
		klog.FromContext(ctx).Info(warning, "address", address)
	}
	s.follow = []part.Part{
		part.Of("client CAs", allowed.Run), part.Of("serving certificate", source.Run),
	}
	return []server.Listener{{
		Address: address, TLS: tls, Authorize: allowed.Authorize, Routes: routes,
		Settings: "address or port (--address, --port)", Type: server.ReadWrite,
	}}, nil
}

func (s *Serving) access() access.Config {
	k := &s.c.Settings.Kubelet
	c := access.Config{
		Node: s.c.Name, Authentication: k.Authentication, Authorization: k.Authorization,
	}
	if s.c.Kube != nil {
		c.Reviewer = s.c.Kube.Reviews()
	}
	return c
}

// certificate is a serving certificate, which Run keeps.
type certificate interface {
	certificates.Source
	Run(context.Context) error
}

// certificate comes from the configured files, is signed by the API server if that is
// wanted, or is our own.
func (s *Serving) certificate(ctx context.Context) (certificate, error) {
	cfg, k := s.c.Settings, &s.c.Settings.Kubelet
	switch {
	case k.TLSCertFile != "" && k.TLSPrivateKeyFile != "":
		return certificates.FromFiles(k.TLSCertFile, k.TLSPrivateKeyFile)
	case k.ServerTLSBootstrap && s.c.Kube != nil:
		return certificates.NewSigned(certificates.SignedConfig{
			Node: s.c.Name, Dir: cfg.Cluster.CertDir, Client: s.c.Kube.Main(),
			Addresses: s.c.Addresses.Known,
			NamesOnly: cfg.Gates.Enabled("AllowDNSOnlyNodeCSR"), Registry: s.c.Registry,
		})
	default:
		var ips []net.IP
		for _, text := range s.c.Addresses.IPs() {
			ips = append(ips, net.ParseIP(text))
		}
		own, err := certificates.SelfSigned(cfg.Cluster.CertDir, s.c.Name, ips)
		return own, s.c.Quarantined(ctx, err, "ServingCertificateQuarantined",
			"who trusted that certificate of the node API has to trust the new one")
	}
}

// nodeRoutes need rights of their own, and so are not on the read-only port.
func (s *Serving) nodeRoutes() []route.Route {
	cfg, runtime, pods := s.c.Settings, s.c.Client.Runtime(), s.c.Pods
	k := &cfg.Kubelet
	out := append(slices.Clone(s.guarded), debug.Configz(cfg.Shown()))
	if cfg.Gates.Enabled("ComponentFlagz") {
		out = append(out, debug.Flags(cfg.Flags())...)
	}
	if cfg.Gates.Enabled("ContainerCheckpoint") {
		out = append(out, checkpoint.Route(checkpoint.Config{
			Runtime: runtime, Pod: s.named, Observed: s.c.PLEG.Get,
			Dir: filepath.Join(cfg.RootDir, "checkpoints"),
		}))
	}
	if !*k.EnableDebuggingHandlers {
		for _, pattern := range []string{
			"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/",
			"/debug/pprof/", "/debug/flags/v", "/logs/",
		} {
			out = append(out, route.Disabled(pattern, noDebug))
		}
		return out
	}
	if cfg.Gates.Enabled("KubeletAllocatedPodsEndpoint") {
		out = append(out, server.AllocatedRoutes(pods.Allocated)...)
	}
	return append(slices.Concat(out, s.inside, switchable(cfg)), server.RunningRoute(s.c.PLEG.All))
}

// insideRoutes reach into containers, unless debugging handlers are off.
func (s *Serving) insideRoutes() ([]route.Route, error) {
	cfg, k := s.c.Settings, &s.c.Settings.Kubelet
	if !*k.EnableDebuggingHandlers {
		return nil, nil
	}
	streams, err := streaming.Routes(streaming.Config{
		Runtime: s.c.Client.Runtime(), Pod: s.c.Pods.Named, Observed: s.c.PLEG.Get,
		Old:  !cfg.Gates.Enabled("ExtendWebSocketsToKubelet"),
		Idle: k.StreamingConnectionIdleTimeout.Duration, Registry: s.c.Registry,
	})
	if err != nil {
		return nil, err
	}
	return append(streams, logs.Route(logs.Config{
		Pod: s.named, Observed: s.c.PLEG.Get,
		SplitStreams: cfg.Gates.Enabled("PodLogsQuerySplitStreams"),
		Patience:     k.StreamingConnectionIdleTimeout.Duration,
	})), nil
}

// named returns the pod of a name.
func (s *Serving) named(namespace, name string) (*v1.Pod, bool) {
	return s.c.Pods.Named(namespace, name, "")
}

// switchable are the routes that the configuration switches off one by one.
func switchable(cfg *config.Config) (out []route.Route) {
	k := &cfg.Kubelet
	if *k.EnableSystemLogHandler {
		out = append(out, nodelogs.Route(nodelogs.Config{
			Root: systemLogs, Query: *k.EnableSystemLogQuery,
			Patience: k.StreamingConnectionIdleTimeout.Duration,
		}))
	} else {
		out = append(out, route.Disabled("/logs/", noLogs))
	}
	if *k.EnableProfilingHandler {
		out = append(out, debug.Profiles()...)
		if k.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	} else {
		out = append(out, route.Disabled("/debug/pprof/", noProfiles))
	}
	if *k.EnableDebugFlagsHandler {
		return append(out, debug.LogLevel())
	}
	return append(out, route.Disabled("/debug/flags/v", noFlags))
}

// patterns returns what the routes answer, sorted.
func patterns(routes []route.Route) []string {
	all := []string{"/healthz"}
	for _, r := range routes {
		all = append(all, strings.TrimSuffix(r.Pattern, "{$}"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
