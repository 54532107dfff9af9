package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/actuator"
	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/fit"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/podresources"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin"
)

// assemble makes the parts and joins them. The order is that of the road of a pod, upwards.
func (a *Agent) assemble(ctx context.Context) error {
	var err error
	a.parts.registry = server.NewRegistry()
	if a.parts.measures, err = newMeasures(a.parts.registry, a.facts.name); err != nil {
		return err
	}
	if a.facts.hardware.Get().CPUs != nil {
		a.parts.measures.expectCPUs()
	}
	runtime, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Connected to the container runtime", "name", runtime.Name,
		"version", runtime.Version, "endpoint", a.cfg.Kubelet.ContainerRuntimeEndpoint)
	a.pods = newPods(status.Node{Runtime: runtime.Name, HostIPs: a.facts.ips})
	if a.observer, err = lifecycle.New(lifecycle.Config{
		Client: a.client, Registry: a.parts.registry,
	}); err != nil {
		return err
	}
	tree, err := a.openCgroups(ctx)
	if err != nil {
		return err
	}
	if a.plugins, err = deviceplugin.New(deviceplugin.Config{
		Dir: deviceDir(a.cfg.RootDir), NodeIDs: a.Machine().NodeSet(),
		RegistryDir: filepath.Join(a.cfg.RootDir, "plugins_registry"),
		Known:       resourcesOf(a.store.State()), Registry: a.parts.registry,
		Deadlines: a.cfg.DevicePlugins.Deadlines, Graces: a.cfg.DevicePlugins.Graces,
		Refused: a.listRefused,
	}); err != nil {
		return err
	}
	a.pool = a.cpuPool(tree)
	volumes, err := volume.New(volume.Config{
		Root: a.cfg.RootDir, ClusterDomain: a.cfg.Kubelet.ClusterDomain, Memory: a.memory,
		RecursiveReadOnly: recursiveReadOnly(runtime),
	})
	if err != nil {
		return err
	}
	dns, err := a.dns()
	if err != nil {
		return err
	}
	decisions := mailbox.New[admission.Result]()
	a.queue = a.admission(decisions)
	ended := mailbox.New[ending]()
	a.workers = a.podWorkers(a.actuator(volumes, tree, dns), volumes, ended)
	return a.assembleLoop(volumes, tree, decisions, ended)
}

// memory is what all pods together may use now, in bytes.
func (a *Agent) memory() int64 {
	hardware := a.facts.hardware.Get()
	return hardware.Allocatable.Memory().Value()
}

func (a *Agent) assembleLoop(volumes *volume.Volumes, tree *cgroups.Tree,
	decisions *mailbox.Box[admission.Result], ended *mailbox.Box[ending]) error {
	a.parts.problems = newProblems()
	a.mux = a.sources()
	a.parts.chores = &chores{
		pods: a.pods, observer: a.observer, workers: a.workers, queue: a.queue, store: a.store,
		volumes: volumes, pool: a.pool, cgroups: tree,
		checkpoints: a.checkpoints,
		measure:     a.measure,
		ready:       func() bool { return a.mux.SeenAll(a.pods.saw) },
		wakeExport:  make(chan struct{}, 1), wakeHousekeep: make(chan struct{}, 1),
	}
	a.parts.health = a.followHealth()
	a.parts.loop = &loop{
		updates: a.mux.Updates(), observed: a.observer.Changes(), decisions: decisions,
		ended: ended, devices: a.plugins.Changed(), pods: a.pods, last: a.observer.Get,
		queue: a.queue, workers: a.workers, chores: a.parts.chores,
		rejected: a.parts.measures.rejection, event: a.event, health: a.parts.health.wake,
	}
	var err error
	if a.parts.podResources, err = a.podResources(); err != nil {
		return err
	}
	a.parts.server, err = server.New(a.serverConfig())
	return err
}

// podResources tells monitoring agents who holds what.
func (a *Agent) podResources() (*podresources.Server, error) {
	return podresources.New(podresources.Config{
		Socket:   filepath.Join(a.cfg.RootDir, "pod-resources", "kubelet.sock"),
		Registry: a.parts.registry,
		Changed:  a.pods.changed,
		Snapshot: func() podresources.Snapshot {
			s := podresources.Snapshot{
				Pods: a.pods.active(), Assigned: a.store.State(), Inventory: a.plugins.Inventory(),
			}
			hardware := a.facts.hardware.Get()
			s.Memory = hardware.Memory
			if static := hardware.CPUs; static != nil {
				s.CPUs = static.Free(cpuset.New())
			}
			return s
		},
	})
}

// openCgroups makes kubepods and the QoS groups; nil where cgroupsPerQOS is off.
func (a *Agent) openCgroups(ctx context.Context) (*cgroups.Tree, error) {
	tree, err := cgroupTree(ctx, a.cfg, a.client)
	if tree == nil || err != nil {
		return nil, err
	}
	return tree, a.limitPods(ctx, tree, a.facts.hardware.Get())
}

// resourcesOf lists the device resources that pods hold, so that they are known before their
// plugins have come back.
func resourcesOf(s allocation.State) []string {
	var out []string
	for name := range allocation.TakenBy(s.List()...).Devices {
		out = append(out, name)
	}
	return out
}

func (a *Agent) admission(decisions *mailbox.Box[admission.Result]) *admission.Queue {
	c := admissionConfig(a.cfg, a.facts)
	c.Store, c.Plugins = a.store, a.plugins
	c.Report = func(r admission.Result) {
		a.parts.measures.decided(r, a.rules())
		decisions.Put(r)
	}
	c.Unadvised, c.Reread = a.unadvised, a.facts.hardware.Reread
	return admission.New(c)
}

// admissionConfig is what the configuration and the node say; where pods and plugins are is not.
func admissionConfig(cfg *config.Config, f facts) admission.Config {
	return admission.Config{
		Hardware: f.hardware.Get, Policy: f.policy, Scope: f.scope,
		Handlers: []admission.Handler{admission.Sysctls(cfg.Kubelet.AllowedUnsafeSysctls)},
		BootID:   f.bootID, Wait: cfg.DeviceAdmissionWait,
	}
}

func (a *Agent) actuator(volumes *volume.Volumes, tree *cgroups.Tree,
	dns cri.DNS) *actuator.Actuator {
	k := &a.cfg.Kubelet
	return actuator.New(actuator.Config{
		Runtime: a.client.Runtime(), Images: a.images(), Observer: a.observer, Volumes: volumes,
		Cgroups: tree, Pool: a.pool, Plugins: a.plugins, State: a.store.State,
		Hardware: a.facts.hardware.Get,
		Node: actuator.Node{
			LogsDir: k.PodLogsDir, LogLinks: logLinks(k.PodLogsDir), ClusterDomain: k.ClusterDomain,
			DNS: dns, Facts: cri.Facts{NodeName: a.facts.name, HostIPs: a.facts.ips},
			Resources: cri.ResourceOptions{
				NoQuota: !*k.CPUCFSQuota, Period: k.CPUCFSQuotaPeriod.Duration,
				OOMGroup: tree != nil && unified() && !ptr.Deref(k.SingleProcessOOMKill, false),
			},
			Security: cri.SecurityOptions{
				SeccompDefault: *k.SeccompDefault,
				SeccompRoot:    filepath.Join(a.cfg.RootDir, "seccomp"),
			},
			PodCgroup: a.podCgroup,
		},
		Event: a.event, Started: a.parts.measures.started,
	})
}

// logLinks is where log collectors look for containers' logs, on a node whose logs are where the
// kubelet has them.
func logLinks(podLogsDir string) string {
	if podLogsDir != "/var/log/pods" {
		return ""
	}
	return "/var/log/containers"
}

// recursiveReadOnly reports whether the runtime's default handler makes such mounts.
func recursiveReadOnly(s cri.RuntimeStatus) bool {
	for _, h := range s.Handlers {
		if h.Name == "" {
			return h.RecursiveReadOnlyMounts
		}
	}
	return false
}

// dns reads resolvConf; "" is no host configuration at all.
func (a *Agent) dns() (cri.DNS, error) {
	k := &a.cfg.Kubelet
	out := cri.DNS{Servers: k.ClusterDNS, Domain: k.ClusterDomain}
	if *k.ResolverConfig == "" {
		return out, nil
	}
	f, err := os.Open(*k.ResolverConfig)
	if err != nil {
		return out, fmt.Errorf("open resolvConf: %w; name the right file with resolvConf "+
			"(--resolv-conf)", err)
	}
	defer f.Close()
	out.Host, err = cri.ParseResolvConf(f)
	return out, err
}

func (a *Agent) images() *cri.Images {
	k := &a.cfg.Kubelet
	parallel := 0
	if k.MaxParallelImagePulls != nil {
		parallel = int(*k.MaxParallelImagePulls)
	}
	return cri.NewImages(a.client.Images(), cri.ImagesConfig{
		Serialize: *k.SerializeImagePulls, MaxParallel: parallel,
		QPS: float32(*k.RegistryPullQPS), Burst: int(k.RegistryBurst),
	})
}

// measure brings the gauges up to date, and tells what is to be told of CPUs. The chores call it.
func (a *Agent) measure() {
	a.tellOffline()
	var exclusive, available cpuset.CPUSet // without the static policy none, as the kubelet says
	if static := a.facts.hardware.Get().CPUs; static != nil {
		exclusive = a.store.State().CPUs()
		available = a.shared().Difference(static.Reserved())
	}
	a.parts.measures.cpus.assigned(a.Machine(), exclusive, available)
	a.parts.measures.counts(a.pods.list(), a.pods.active())
}

// event tells what happened to a pod. Without an API server the log is where events go.
func (a *Agent) event(pod *v1.Pod, eventType, reason, message string) {
	klog.Background().V(1).Info("Event", "pod", klog.KObj(pod), "type", eventType,
		"reason", reason, "message", message)
}

func (a *Agent) podWorkers(act podworker.Actuator, volumes *volume.Volumes,
	ended *mailbox.Box[ending]) *podworker.Workers {
	r := reporter{pods: a.pods, volumes: volumes, ended: ended, logsDir: a.cfg.Kubelet.PodLogsDir}
	return podworker.New(podworker.Config{
		Actuator: act,
		Report:   r.report,
		Gone:     func(uid types.UID) { ended.Put(ending{uid: uid, gone: true}) },
		BackOff: podworker.BackOff{
			Max: a.cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		},
		Sync: a.cfg.Kubelet.SyncFrequency.Duration,
	})
}

// sources reads manifests from where the configuration says.
func (a *Agent) sources() *source.Mux {
	k := &a.cfg.Kubelet
	var feeds []source.Feed
	if k.StaticPodPath != "" {
		feeds = append(feeds, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Node: a.facts.name, Every: k.FileCheckFrequency.Duration,
			Report: a.parts.problems.report,
		}))
	}
	if k.StaticPodURL != "" {
		feeds = append(feeds, source.NewHTTP(source.HTTPConfig{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Node: a.facts.name,
			Every: k.HTTPCheckFrequency.Duration, Report: a.parts.problems.report,
		}))
	}
	return source.NewMux(source.MuxConfig{Feeds: feeds, Report: a.parts.problems.report})
}

// serverConfig has the healthz port, which has nothing but the health checks of every listener, and
// the read-only port. Both are plain HTTP without authorization, and nothing there changes anything.
func (a *Agent) serverConfig() server.Config {
	k := &a.cfg.Kubelet
	c := server.Config{Checks: []healthz.HealthChecker{
		healthz.NamedCheck("syncloop", func(*http.Request) error {
			return a.healthy(time.Now())
		}),
		healthz.NamedCheck("pleg", func(*http.Request) error {
			return a.observer.Healthy(time.Now())
		}),
	}}
	if *k.HealthzPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address: net.JoinHostPort(k.HealthzBindAddress, strconv.Itoa(int(*k.HealthzPort))),
			Settings: "healthzBindAddress or healthzPort (--healthz-bind-address, " +
				"--healthz-port)",
		})
	}
	if k.ReadOnlyPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address:  net.JoinHostPort(k.Address, strconv.Itoa(int(k.ReadOnlyPort))),
			Settings: "address or readOnlyPort (--address, --read-only-port)",
			Routes: []server.Route{
				server.PodsRoute(a.Pods),
				server.MetricsRoute(a.parts.registry),
				server.JSONRoute("/placements", func() any { return a.Placements() }),
				server.JSONRoute("/problems", func() any { return a.Problems() }),
				admission.Route(a.queue, a.facts.name, a.knows),
				fit.Route(a.queue, a.plugins),
			},
		})
	}
	return c
}

// knows reports whether there is a pod of that name, whatever has become of it.
func (a *Agent) knows(namespace, name string) bool {
	return slices.ContainsFunc(a.pods.list(), func(pod *v1.Pod) bool {
		return pod.Namespace == namespace && pod.Name == name
	})
}
