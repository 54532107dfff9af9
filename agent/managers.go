package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/admission/handlers"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/allocation/handover"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/agent/needs"
	nodestatus "github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podcgroups"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/released"
	"github.com/numalet/numalet/agent/stats/kernel"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of events about device plugins. The kubelet has none.
const (
	reasonPreferenceIgnored = "DevicePreferenceIgnored"
	reasonListRefused       = "DevicePluginListRefused"    // on the node
	reasonCordonsAside      = "CordonedDevicesQuarantined" // on the node
	reasonListsAside        = "DeviceListsQuarantined"     // on the node
	reasonReleaseUnanswered = "DeviceReleaseUnanswered"    // on the node
)

func newMetrics(n node) (*metrics.Metrics, error) {
	m, err := metrics.New(metrics.Config{
		Registry: n.registry, Node: n.name, StaticCPUs: n.hardware.Get().CPUs != nil,
		Rules: func() metrics.Rules {
			h := n.hardware.Get()
			return metrics.Rules{
				Rules: n.rules, Machine: h.Machine,
				WholeCores: h.CPUs != nil && h.CPUs.WholeCores(),
			}
		},
	})
	if err != nil {
		return nil, err
	}
	proc, err := kernel.NewProc("")
	if err != nil {
		return nil, err
	}
	booted, err := proc.BootTime()
	if err != nil {
		return nil, err
	}
	m.Booted(booted)
	return m, nil
}

// newPlugins makes the device manager; changed is told of another inventory.
func newPlugins(ctx context.Context, n node, changed func()) (*devicemanager.Plugins, error) {
	cordons, err := cordon.Open(filepath.Join(n.cfg.RootDir, cordon.FileName))
	if errors.Is(err, cordon.ErrUnusable) {
		klog.FromContext(ctx).Error(err, "No device is cordoned now")
		n.events.OnNode(v1.EventTypeWarning, reasonCordonsAside, err.Error()+
			"; no device is cordoned now: cordon them again")
	} else if err != nil {
		return nil, err
	}
	lists, err := recall.Open(filepath.Join(n.cfg.RootDir, recall.FileName))
	if errors.Is(err, recall.ErrUnusable) {
		klog.FromContext(ctx).Error(err, "Devices are not known until their plugins register")
		n.events.OnNode(v1.EventTypeWarning, reasonListsAside, err.Error()+
			"; devices count when their plugins have registered")
	} else if err != nil {
		return nil, err
	}
	return devicemanager.New(devicemanager.Config{
		Dirs: devicemanager.Dirs{
			Plugins:  deviceDir(n.cfg.RootDir),
			Registry: filepath.Join(n.cfg.RootDir, "plugins_registry"),
		},
		NodeIDs: n.hardware.Get().Machine.NodeSet(), Registry: n.registry,
		Before:    devicemanager.Before{Lists: lists, Resources: knownResources(n)},
		Cordons:   cordons,
		Deadlines: n.cfg.DevicePlugins.Deadlines, Graces: n.cfg.DevicePlugins.Graces,
		Strict: n.cfg.DevicePlugins.Strict, Changed: changed,
		Refused: func(r devicemanager.RefusedList) {
			n.events.OnNode(v1.EventTypeWarning, reasonListRefused, "Device "+r.String())
		},
	})
}

// newTeller makes what tells plugins which devices were released.
func newTeller(n node, p parts, l *links) *released.Teller {
	return released.New(released.Config{
		Store: n.store, Plugins: p.plugins, Settled: p.queue.Poke,
		Changed: mailbox.Subscribe(n.store.Changes(), &l.inventory),
		GaveUp: func(o allocation.Owed, why error) {
			n.events.OnNode(v1.EventTypeWarning, reasonReleaseUnanswered, fmt.Sprintf(
				"Devices %s of %s, which pod %s/%s had, are given out again though their device "+
					"plugin did not answer that it knows that they were released: %v",
				devicemanager.Few(o.IDs), o.Resource, o.Namespace, o.Name, why))
		},
	})
}

// deviceDir is the directory of the device plugins' sockets below the root directory.
func deviceDir(root string) string {
	return filepath.Join(root, filepath.Base(filepath.Clean(pluginapi.DevicePluginPath)))
}

// knownResources lists the device resources that pods hold, and those that plugins registered with
// the kubelet that was here before, so that they are known before their plugins have come back.
func knownResources(n node) []string {
	held := allocation.TakenBy(n.store.State().List()...).Devices()
	all := slices.Concat(slices.Collect(maps.Keys(held)),
		handover.KubeletResources(deviceDir(n.cfg.RootDir)))
	slices.Sort(all)
	return slices.Compact(all)
}

func newCgroups(n node, statuses *podstatus.Store) *podcgroups.Groups {
	return podcgroups.New(podcgroups.Config{
		Kubelet: &n.cfg.Kubelet, Tree: n.tree, Hardware: n.hardware.Get, State: n.store.State,
		Pod: statuses.Get, Active: statuses.Active,
	})
}

// newPool makes what keeps the CPU sets of containers, and what belongs to them.
func newPool(n node, p parts) *cpupool.Pool {
	k := &n.cfg.Kubelet
	c := cpupool.Config{
		Hardware: n.hardware.Get, State: n.store.State,
		Runtime: n.client.Runtime(), Observer: p.observer,
		PodLimit: p.cgroups.CPULimit, Period: k.CPUManagerReconcilePeriod.Duration,
		Repaired: p.metrics.Repaired, Unread: p.metrics.Unread, Asked: askedCPUs(p.statuses),
		Changed: mailbox.Subscribe(n.store.Changes(), n.hardware.Changes()),
	}
	if *k.CPUCFSQuota {
		period := cmp.Or(k.CPUCFSQuotaPeriod.Duration, cgroups.DefaultPeriod)
		c.Limit = func(cpus int) cgroups.CPULimit {
			return cgroups.CPULimit{
				Quota: cgroups.Quota(int64(cpus)*1000, period), Period: period.Microseconds(),
			}
		}
	}
	if n.tree != nil {
		c.Cgroups = n.tree
	}
	return cpupool.New(c)
}

// askedCPUs tells of containers whose CPUs are padded to whole cores how many they asked for.
func askedCPUs(pods *podstatus.Store) func(types.UID, string) (cpus int, known bool) {
	return func(uid types.UID, container string) (cpus int, known bool) {
		pod, known := pods.Get(uid)
		if !known || !podspec.CPURules(pod).WholeCores {
			return 0, known
		}
		if c, _ := podspec.Find(pod, container); c != nil {
			cpus = cpumanager.Exclusive(pod, c)
		}
		return cpus, true
	}
}

// messagePreempting is the kubelet's, of a pod that makes way.
const messagePreempting = "Preempted in order to admit critical pod"

// newQueue makes admission, which looks at the node's object, and whose outcomes go up.
func newQueue(n node, p parts, own ownNode, of *needs.Needs, l *links) *admission.Queue {
	c := admissionConfig(n)
	c.Store, c.Plugins, c.Node = n.store, p.plugins, own.object
	c.Reread = func(ctx context.Context, what decide.Stale) {
		if what == decide.StaleNode {
			own.reread(ctx)
			return
		}
		n.hardware.Reread(ctx)
	}
	if n.kube != nil {
		c.Handlers = append(c.Handlers, handlers.Claims) // of static pods they have no effect
		c.Needs = of
	}
	c.Handlers = append(c.Handlers,
		handlers.GroupsPolicy(n.runtime.SupplementalGroupsPolicy),
		handlers.AppArmor(enforcesAppArmor("/")))
	c.Report = func(r admission.Result) {
		p.metrics.Decided(r)
		tellLack(n, r)
		l.decisions.Put(r)
	}
	c.Preempt = func(one admission.Preemption) {
		p.metrics.Preempted(string(one.Resource))
		n.events.Pod(one.Victim, v1.EventTypeWarning, status.ReasonPreempting, messagePreempting)
		l.events.Put(syncloop.Event{UID: one.Victim.UID, Event: pod.Event{Kind: pod.Killed,
			Why: pod.Why{Reason: status.ReasonPreempting, Message: messagePreempting}}})
	}
	c.Unadvised = func(pod *v1.Pod, key allocation.AskKey, err error) {
		n.events.Pod(pod, v1.EventTypeWarning, reasonPreferenceIgnored, fmt.Sprintf(
			"Container %s: the agent chose devices of %s without the device plugin's "+
				"preference: %v", key.Container, key.Resource, err))
	}
	return admission.New(c)
}

// tellLack tells as a kubelet does what a pod lacks, beside that it waits for it.
func tellLack(n node, r admission.Result) {
	switch lack := r.Lack; {
	case !lack.Missing():
	case lack.Container == "":
		n.events.Pod(r.Pod, v1.EventTypeWarning, lack.Reason, lack.Why)
	default:
		n.events.Container(podspec.Ref{Pod: r.Pod, Container: lack.Container},
			v1.EventTypeWarning, lack.Reason, lack.Why)
	}
}

// admissionConfig is what the configuration and the node say; where pods and plugins are is not.
func admissionConfig(n node) admission.Config {
	return admission.Config{
		Hardware: n.hardware.Get, Rules: n.rules,
		Handlers: []decide.Handler{
			flaws, handlers.Placement(n.rules), handlers.Sysctls(n.cfg.Kubelet.AllowedUnsafeSysctls),
			handlers.OS, handlers.Affinity, handlers.Ports, handlers.Taints,
			nodeFeatures(n).Refuse, handlers.Volumes(volume.Unsupported),
		},
		BootID: n.host.bootID, Wait: n.cfg.DevicePlugins.Wait,
	}
}

// nodeFeatures are those that the node declares, as of the kubelet's release that it is like.
func nodeFeatures(n node) handlers.Features {
	return handlers.NewFeatures(nodestatus.DeclaredFeatures(n.cfg.Gates),
		version.MustParseGeneric(config.KubeletVersion))
}
