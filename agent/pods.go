package agent

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/actuator"
	"github.com/numalet/numalet/agent/health"
	"github.com/numalet/numalet/agent/logs"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podstatus/kept"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/resize"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/agent/userns"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

// newStatuses makes the store of pods' statuses, in which the health of devices is told if the node
// tells of it at all.
func newStatuses(n node, p parts, l *links) *podstatus.Store {
	c := podstatus.Config{
		Infeasible: resize.Policies{
			StaticCPUs:   n.cfg.Kubelet.CPUManagerPolicy == "static",
			StaticMemory: n.cfg.Kubelet.MemoryManagerPolicy == "Static",
		}.Infeasible,
		Ending:  func(uid types.UID) { l.events.Put(syncloop.Ending(uid)) },
		HostIPs: n.host.addresses.IPs,
		Node:    status.Node{Runtime: n.runtime.Name, Handlers: n.runtime.Handlers},
		Recall:  recallStatus(l.told.kept, p.observer.Get),
		Wrote: func(c podstatus.Change) {
			p.metrics.Status(c)
			l.told.wrote(c)
		},
	}
	if tellsDevices(n) {
		c.Devices = func(uid types.UID) map[string][]v1.ResourceStatus {
			return health.ResourceStatuses(n.store.State().Pods[uid], p.plugins.Inventory())
		}
	}
	return podstatus.New(c)
}

// recallStatus is what an earlier run of the agent told of a pod that runs still. An end counts only if
// the runtime agrees: a pod that was refused, or that the node ended, begins anew, and so does one that
// a reboot ended.
func recallStatus(kept *kept.Statuses, runtime func(types.UID) (cri.Pod, bool)) func(*v1.Pod) v1.PodStatus {
	return func(pod *v1.Pod) v1.PodStatus {
		told := kept.Recall(pod)
		observed, recorded := runtime(pod.UID)
		still := recorded && observed.Running()
		if status.Ended(told.Phase) {
			still = recorded && status.Ended(status.Phase(pod, status.Facts{Observed: observed}))
		}
		if !still {
			return v1.PodStatus{}
		}
		return told
	}
}

// recallMirrored takes from the first mirror pods what was told of static pods, if nothing was kept: before
// the API server can be told anything else of them.
func recallMirrored(p parts, told told, all []*v1.Pod) {
	if !told.kept.Mirrored(all) {
		return
	}
	for _, uid := range p.statuses.RecallAgain() {
		p.workers.Wake(uid)
	}
}

func tellsDevices(n node) bool { return n.cfg.Gates.Enabled("ResourceHealthStatus") }

// newWorkers makes the pod workers, and what tells of pods beside them. What they see becomes a status,
// and that a pod has ended or is gone an event.
func newWorkers(n node, p parts, c contents, tell func(syncloop.Event)) (
	*podworker.Workers, part, error) {
	act, err := newActuator(n, p, c)
	if err != nil {
		return nil, part{}, err
	}
	k := &n.cfg.Kubelet
	statuses := podstatus.Reporter{
		Statuses: p.statuses, Terminations: c.volumes, LogsDir: k.PodLogsDir,
	}
	told := newNotices(noticesConfig{pod: n.events.Pod, container: n.events.Container,
		lacking: nodeFeatures(n).Lacking})
	return podworker.New(podworker.Config{
		Actuator: act, Keep: podworker.Retention{
			Dead: int(n.cfg.DeadContainers.PerContainer), Age: n.cfg.DeadContainers.Age,
		},
		Report: func(r podworker.Report) {
			told.look(r)
			p.metrics.Round(r)
			if s, ok := statuses.Report(r); ok {
				p.probes.Follow(r.Pod, s, r.Decision.State != podworker.SyncPod)
			}
			removed := r.Stop != nil && r.Stop.Remove // which Gone tells when it is done
			if r.Err == nil && r.Decision.State == podworker.Finished && !removed {
				tell(syncloop.Event{UID: r.Pod.UID, Event: pod.Event{Kind: pod.Ended}})
			}
		},
		Gone: func(uid types.UID) {
			p.metrics.Gone(uid)
			told.gone(uid)
			p.probes.Forget(uid)
			tell(syncloop.Event{UID: uid, Event: pod.Event{Kind: pod.Gone}})
		},
		BackOff: podworker.BackOff{Max: k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration},
		Sync:    k.SyncFrequency.Duration, Due: c.volumes.Due,
		Probed: p.probes.Probed, HooksPending: c.volumes.HooksPending, Attempt: nextAttempt(n, p),
	}), part{"notices of pods", told.run}, nil
}

// nextAttempt is the one at a container that comes after all that the pod's status and logs tell of.
func nextAttempt(n node, p parts) func(pod *v1.Pod, container string) uint32 {
	written := logs.Place{Dir: n.cfg.Kubelet.PodLogsDir}
	return func(pod *v1.Pod, container string) uint32 {
		return max(written.Next(pod, container),
			status.Attempt(p.statuses.Status(pod.UID), container))
	}
}

func newActuator(n node, p parts, c contents) (*actuator.Actuator, error) {
	k := &n.cfg.Kubelet
	dns, err := readDNS(n)
	if err != nil {
		return nil, err
	}
	users, err := newUsers(n)
	if err != nil {
		return nil, err
	}
	images, err := newImages(n, c, p.metrics)
	if err != nil {
		return nil, err
	}
	cfg := actuator.Config{
		Runtime: n.client.Runtime(), Images: images,
		Observer: p.observer, Volumes: c.volumes,
		Cgroups: n.tree, Pool: p.pool, Plugins: p.plugins, State: n.store.State,
		Hardware: n.hardware.Get,
		Node: actuator.Node{
			Root:          n.runtime.others.Own(),
			Logs:          logs.Place{Dir: k.PodLogsDir, Links: logLinks(k.PodLogsDir)},
			ClusterDomain: k.ClusterDomain, DNS: dns,
			Network: actuator.Network{
				IPs: n.host.addresses.IPs, Problem: func() string { return n.runtime.up.Get().NetworkProblem() },
			},
			Facts: cri.Facts{NodeName: n.name},
			Resources: cri.ResourceOptions{
				NoQuota: !*k.CPUCFSQuota, Period: k.CPUCFSQuotaPeriod.Duration,
				OOMGroup: n.tree != nil && unified() && !ptr.Deref(k.SingleProcessOOMKill, false),
				Swap:     hostSwap("/", k),
				Memory:   cri.MemoryQoS{Unified: unified(), MemoryQoS: memoryQoS(n.cfg)},
			},
			Security: cri.SecurityOptions{
				SeccompDefault: *k.SeccompDefault,
				SeccompRoot:    filepath.Join(n.cfg.RootDir, "seccomp"),
				Masked:         thermalPaths("/"),
			},
			Users: users, Handlers: n.runtime.Handlers, Sysctls: k.DefaultPodSysctls,
			PodCgroup: p.cgroups.Options,
		},
		Tell: actuator.Tell{
			Event: n.events.Pod, Node: n.events.OnNode, Container: n.events.Container,
			Started: p.metrics.Started, Hooked: p.metrics.Hooked,
		},
	}
	if c.objects != nil {
		cfg.Objects = c.objects
	}
	return actuator.New(cfg), nil
}

// newUsers makes what gives pods their user namespaces.
func newUsers(n node) (*userns.Ranges, error) {
	perPod := uint32(*n.cfg.Kubelet.UserNamespaces.IDsPerPod)
	host, err := userns.Host(context.Background(), perPod, int(n.cfg.Kubelet.MaxPods))
	if err != nil {
		return nil, err
	}
	return userns.New(userns.Config{
		Pods: filepath.Join(n.cfg.RootDir, "pods"), Host: host, PerPod: perPod,
		Begin: rand.IntN(math.MaxInt),
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

// readDNS reads resolvConf; "" is no host configuration at all.
func readDNS(n node) (cri.DNS, error) {
	k := &n.cfg.Kubelet
	out := cri.DNS{
		Servers: k.ClusterDNS, Domain: k.ClusterDomain,
		IPv6: n.host.addresses.IPv6(),
	}
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

// sources are where pods come from, and what is wrong there.
type sources struct {
	*source.Mux
	*source.Problems
}

// newSources reads manifests from where the configuration says.
// saw takes all pods of the API server and returns those that are to run.
func newSources(n node, running func() []cri.Pod, saw func([]*v1.Pod) []*v1.Pod) sources {
	problems := source.NewProblems()
	k := &n.cfg.Kubelet
	var feeds []source.Feed
	if k.StaticPodPath != "" {
		feeds = append(feeds, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Node: n.name, Every: k.FileCheckFrequency.Duration,
			Strict: n.cfg.RefuseUnknownFields, Report: problems.Report,
		}))
	}
	if k.StaticPodURL != "" {
		feeds = append(feeds, source.NewHTTP(source.HTTPConfig{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Node: n.name,
			Every: k.HTTPCheckFrequency.Duration, Strict: n.cfg.RefuseUnknownFields,
			Report: problems.Report,
		}))
	}
	feeds = append(feeds, apiFeeds(n, running, problems.Report, saw)...)
	return sources{
		source.NewMux(source.MuxConfig{
			Feeds: feeds, Report: problems.Report,
			Identities: source.NewIdentities(
				filepath.Join(n.cfg.RootDir, source.IdentitiesFile), running, problems.Report),
		}), problems,
	}
}

// admittedBefore knows what pods that run already were admitted with.
func admittedBefore(ctx context.Context, n node) resize.Admitted {
	admitted, err := resize.Open(n.cfg.RootDir)
	if err != nil {
		klog.FromContext(ctx).Error(err, "What a kubelet admitted pods with is not known")
	}
	return admitted
}
