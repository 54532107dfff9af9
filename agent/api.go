package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/devices"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/server/access"
	"github.com/numalet/numalet/agent/server/certificates"
	"github.com/numalet/numalet/agent/server/checkpoint"
	"github.com/numalet/numalet/agent/server/debug"
	"github.com/numalet/numalet/agent/server/logs"
	"github.com/numalet/numalet/agent/server/nodelogs"
	"github.com/numalet/numalet/agent/server/streaming"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// systemLogs is the host's folder of logs.
const systemLogs = "/var/log"

// What is answered where the configuration switches something off.
const (
	noDebug    = "Debug endpoints are disabled."
	noLogs     = "logs endpoint is disabled."
	noProfiles = "profiling endpoint is disabled."
	noFlags    = "flags endpoint is disabled."
)

// nodeAPI is the HTTPS server of the node: what kubectl and the API server ask. open are the routes
// that the read-only port has too. There is no listener where it is switched off, or where nobody
// could be allowed to ask: that is told in the log.
func nodeAPI(ctx context.Context, n node, p parts, open []server.Route) (
	[]server.Listener, []part, error) {
	k := &n.cfg.Kubelet
	if !*k.EnableServer {
		return nil, nil, nil
	}
	c := accessConfig(n)
	allowed, err := access.New(c)
	if errors.Is(err, access.ErrNobody) {
		klog.FromContext(ctx).Info("The node API (port 10250) is not served", "why", err)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	source, follow, err := servingCertificate(n)
	if err != nil {
		return nil, nil, err
	}
	tls, err := certificates.TLS(k, source, allowed.ClientCAs)
	if err != nil {
		return nil, nil, err
	}
	routes, err := nodeRoutes(n, p)
	if err != nil {
		return nil, nil, err
	}
	routes = append(routes, open...)
	if n.cfg.Gates.Enabled("ComponentStatusz") {
		routes = append(routes, debug.Status(patterns(routes))...)
	}
	address := net.JoinHostPort(k.Address, strconv.Itoa(int(k.Port)))
	if warning := access.Warning(c); warning != "" {
		klog.FromContext(ctx).Info(warning, "address", address)
	}
	return []server.Listener{{
			Address: address, TLS: tls, Authorize: allowed.Authorize, Routes: routes,
			Settings: "address or port (--address, --port)", Type: server.ReadWrite,
		}}, []part{
			{"client CAs", allowed.Run}, {"serving certificate", follow},
		}, nil
}

func accessConfig(n node) access.Config {
	c := access.Config{
		Node: n.name, Authentication: n.cfg.Kubelet.Authentication,
		Authorization: n.cfg.Kubelet.Authorization,
	}
	if n.kube != nil {
		c.Reviewer = n.kube.Reviews()
	}
	return c
}

// servingCertificate is from the files that are named, signed by the API server if that is wanted,
// or our own. follow keeps it.
func servingCertificate(n node) (certificates.Source, func(context.Context) error, error) {
	k := &n.cfg.Kubelet
	switch {
	case k.TLSCertFile != "" && k.TLSPrivateKeyFile != "":
		f, err := certificates.FromFiles(k.TLSCertFile, k.TLSPrivateKeyFile)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Run, nil
	case k.ServerTLSBootstrap && n.kube != nil:
		s, err := certificates.NewSigned(certificates.SignedConfig{
			Node: n.name, Dir: n.cfg.Cluster.CertDir, Client: n.kube.Main(),
			Addresses: n.host.addresses.Known,
			NamesOnly: n.cfg.Gates.Enabled("AllowDNSOnlyNodeCSR"), Registry: n.registry,
		})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Run, nil
	default:
		f, err := certificates.SelfSigned(n.cfg.Cluster.CertDir, n.name, parseIPs(n.host.addresses.IPs()))
		if err != nil {
			return nil, nil, err
		}
		return f, f.Run, nil
	}
}

func parseIPs(texts []string) []net.IP {
	var out []net.IP
	for _, text := range texts {
		out = append(out, net.ParseIP(text))
	}
	return out
}

// nodeRoutes are those that need rights of their own, and so are not on the read-only port.
func nodeRoutes(n node, p parts) ([]server.Route, error) {
	k := &n.cfg.Kubelet
	out := append(devices.Routes(deviceConfig(n, p)), debug.Configz(n.cfg.Shown()))
	if n.cfg.Gates.Enabled("ComponentFlagz") {
		out = append(out, debug.Flags(n.cfg.Flags())...)
	}
	if n.cfg.Gates.Enabled("ContainerCheckpoint") {
		out = append(out, checkpoint.Route(checkpoint.Config{
			Runtime: n.client.Runtime(), Pod: p.podNamed, Observed: p.observer.Get,
			Dir: filepath.Join(n.cfg.RootDir, "checkpoints"),
		}))
	}
	if !*k.EnableDebuggingHandlers {
		for _, pattern := range []string{
			"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/",
			"/debug/pprof/", "/debug/flags/v", "/logs/",
		} {
			out = append(out, server.DisabledRoute(pattern, noDebug))
		}
		return out, nil
	}
	streams, err := streaming.Routes(streaming.Config{
		Runtime: n.client.Runtime(), Pod: p.podWith, Observed: p.observer.Get,
		Old:  !n.cfg.Gates.Enabled("ExtendWebSocketsToKubelet"),
		Idle: k.StreamingConnectionIdleTimeout.Duration, Registry: n.registry,
	})
	if err != nil {
		return nil, err
	}
	if n.cfg.Gates.Enabled("KubeletAllocatedPodsEndpoint") {
		out = append(out, server.AllocatedRoutes(p.statuses.Allocated)...)
	}
	return slices.Concat(out, streams, switchable(n.cfg), []server.Route{
		logs.Route(logs.Config{
			Pod: p.podNamed, Observed: p.observer.Get,
			SplitStreams: n.cfg.Gates.Enabled("PodLogsQuerySplitStreams"),
			Patience:     k.StreamingConnectionIdleTimeout.Duration,
		}),
		{Method: http.MethodGet, Pattern: "/runningpods/{$}", Handler: server.JSONRoute("",
			func() any { return runningPods(p.observer.All()) }).Handler},
	}), nil
}

// switchable are the routes that the configuration switches off one by one.
func switchable(cfg *config.Config) (out []server.Route) {
	k := &cfg.Kubelet
	if *k.EnableSystemLogHandler {
		out = append(out, nodelogs.Route(nodelogs.Config{
			Root: systemLogs, Query: *k.EnableSystemLogQuery && cfg.Gates.Enabled("NodeLogQuery"),
			Patience: k.StreamingConnectionIdleTimeout.Duration,
		}))
	} else {
		out = append(out, server.DisabledRoute("/logs/", noLogs))
	}
	if *k.EnableProfilingHandler {
		out = append(out, debug.Profiles()...)
		if k.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	} else {
		out = append(out, server.DisabledRoute("/debug/pprof/", noProfiles))
	}
	if *k.EnableDebugFlagsHandler {
		return append(out, debug.LogLevel())
	}
	return append(out, server.DisabledRoute("/debug/flags/v", noFlags))
}

// patterns are what the routes answer, sorted.
func patterns(routes []server.Route) []string {
	all := map[string]bool{"/healthz": true}
	for _, r := range routes {
		all[strings.TrimSuffix(r.Pattern, "{$}")] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// podNamed is the pod of that name with its status; of several, one that has not ended, and rather the
// one that the API server shows by that name than a static one.
func (p parts) podNamed(namespace, name string) (*v1.Pod, bool) {
	return p.podWith(namespace, name, "")
}

// podWith is podNamed; uid, unless "", is the pod's.
func (p parts) podWith(namespace, name string, uid types.UID) (found *v1.Pod, ok bool) {
	for _, pod := range p.statuses.List() {
		if pod.Namespace != namespace || pod.Name != name || uid != "" && pod.UID != uid {
			continue
		}
		if found == nil || ended(found) && !ended(pod) ||
			ended(found) == ended(pod) && podspec.IsStatic(found) && !podspec.IsStatic(pod) {
			found = pod
		}
	}
	return found, found != nil
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// runningPods are the pods of which something runs, as the runtime knows them.
func runningPods(all []cri.Pod) v1.PodList {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{},
	}
	for _, found := range all {
		if !found.Running() {
			continue
		}
		pod := *found.Reference()
		for _, c := range found.Containers {
			if c.State == cri.ContainerRunning {
				pod.Spec.Containers = append(pod.Spec.Containers,
					v1.Container{Name: c.Name, Image: c.From.Image})
			}
		}
		list.Items = append(list.Items, pod)
	}
	return list
}

// errRegistration is why the health check of device plugins fails.
var errRegistration = fmt.Errorf("the registration of device plugins is not served yet")
