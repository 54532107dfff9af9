package node

import (
	"context"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/daemons"
	"github.com/numalet/numalet/agent/node/firewall"
	"github.com/numalet/numalet/agent/node/oom"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/watchdog"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// Guards lists the goroutines that run from the start: one tells systemd's watchdog that the agent is well as
// long as the check finds nothing, one keeps the node's iptables chains.
func (h *Host) Guards(check func() error) ([]part.Part, error) {
	guard, err := watchdog.New(check)
	if err != nil {
		return nil, err
	}
	out := []part.Part{part.Of("watchdog", guard.Run)}
	if *h.Settings.Kubelet.MakeIPTablesUtilChains {
		out = append(out, part.Of("iptables chains", firewall.New().Run))
	}
	return out, nil
}

// Parts lists the goroutines that begin once running pods were adopted. object returns the node's object; nil:
// it is not known.
func (h *Host) Parts(object func() *v1.Node) ([]part.Part, error) {
	out := []part.Part{
		part.Of("machine", h.Hardware.Run),
		part.Of("container runtime status", h.Up.Run),
		part.Of("addresses", h.Addresses.Run),
		h.podCIDR(object),
		part.Of("oom watcher", oom.Watcher{Log: oom.KernelLog, Tell: h.Events.OnNode}.Run),
		part.Of("systemd", announce),
	}
	d, err := daemons.New(h.DaemonNames(), h.Settings.Kubelet.ContainerRuntimeEndpoint)
	if d == nil {
		return out, err
	}
	return append(out, part.Chore(housekeeping.Task{ // the kernel may take long for each process that is moved
		Name: "cgroups of daemons", Period: daemonsPeriod, First: time.Millisecond,
		On: []mailbox.Source{h.Up.Changes()}, Run: d.Look,
	})), nil
}

// daemonsPeriod is the time between two looks at the cgroups of what runs beside pods.
const daemonsPeriod = time.Minute

// DaemonNames says in which cgroups the agent and others are to run.
func (h *Host) DaemonNames() daemons.Names {
	k := &h.Settings.Kubelet
	return daemons.Names{Agent: k.KubeletCgroups, Runtime: h.Settings.RuntimeCgroups, System: k.SystemCgroups}
}

// podCIDR tells the runtime which addresses pods get: what the node's object says, and until then, or on a
// standalone node, the configuration.
func (h *Host) podCIDR(object func() *v1.Node) part.Part {
	k := &h.Settings.Kubelet
	p := &runtimeup.PodCIDR{
		Want: func() string { return podCIDR(object(), k.PodCIDR) },
		Tell: func(ctx context.Context, cidr string) error {
			return h.Client.Runtime().UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{
				NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr},
			})
		},
	}
	return part.Chore(housekeeping.Task{
		Name: "addresses of pods", First: time.Millisecond, Run: p.Look,
		Period: k.NodeStatusUpdateFrequency.Duration,
	})
}

// podCIDR returns what the node's object says, which may not be known yet, or else the configured
// range.
func podCIDR(own *v1.Node, configured string) string {
	if own != nil && len(own.Spec.PodCIDRs) > 0 {
		return strings.Join(own.Spec.PodCIDRs, ",")
	}
	return configured
}

// announce tells systemd, if it started the agent, that the agent is ready, and when it begins to
// end (sd_notify(3)).
func announce(ctx context.Context) error {
	for _, state := range []string{daemon.SdNotifyReady, daemon.SdNotifyStopping} {
		if _, err := daemon.SdNotify(false, state); err != nil {
			klog.FromContext(ctx).Info("systemd was not told", "state", state, "err", err)
		}
		<-ctx.Done()
	}
	return nil
}
