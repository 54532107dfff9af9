package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/memory"
)

// machinePeriod is how often the machine is read again.
const machinePeriod = 10 * time.Second

// openMachine discovers the machine. It is followed from then on, unless it comes from a file:
// then it is data. The error says what does not go together on it.
func openMachine(cfg *config.Config,
	changed func(ctx context.Context, before, after machine.Hardware)) (*machine.Current, error) {
	m, err := discover.Open(cfg.TopologyFrom)
	if err != nil {
		return nil, err
	}
	first, err := HardwareOf(cfg, m)
	if err != nil {
		return nil, err
	}
	follow := machine.Config{
		Derive: func(m *topology.Machine) (machine.Hardware, error) {
			return derive(cfg, m, first.CPUs)
		},
		Period: machinePeriod, Changed: changed,
	}
	root := cfg.TopologyFrom
	if info, err := os.Stat(root); root == "" || err == nil && info.IsDir() {
		follow.Read = func(now *topology.Machine) (*topology.Machine, error) {
			return discover.Refresh(root, now)
		}
		follow.Sign = func() string {
			online, err := discover.OnlineCPUs(root)
			if err != nil {
				return err.Error() // Read says what is wrong, and again when it is over
			}
			return online
		}
	}
	return machine.New(follow, first), nil
}

// HardwareOf is machine m as an agent that starts with the configuration sees it. The error says
// what does not go together.
func HardwareOf(cfg *config.Config, m *topology.Machine) (machine.Hardware, error) {
	h, err := derive(cfg, m, nil)
	if err != nil {
		return h, err
	}
	if cfg.Kubelet.MemoryManagerPolicy == kubeletconfig.StaticMemoryManagerPolicy {
		err = memory.CheckReserved(cfg.Kubelet.ReservedMemory, h.Reservation.Kept(), slack(cfg, m))
	}
	if err != nil {
		return h, fmt.Errorf("invalid configuration: reservedMemory: %w; it must add up to "+
			"kubeReserved, systemReserved and evictionHard[memory.available]", err)
	}
	return h, nil
}

// drift is the part by which a machine's total memory may be another one after a reboot: another
// kernel, firmware or crash kernel keeps some tens or hundreds of MiB more or less for itself.
const drift = 0.02

// slack is by how many bytes evictionHard[memory.available] may be another one for that reason:
// none if it is a quantity.
func slack(cfg *config.Config, m *topology.Machine) int64 {
	threshold, set, err := config.ParseThreshold(cfg.Kubelet.EvictionHard["memory.available"])
	if err != nil || !set {
		return 0 // derive has said what is wrong
	}
	return int64(threshold.Part * drift * float64(m.MemoryBytes()))
}

// derive is the hardware of machine m under the configuration. at is the CPU policy that the agent
// started with, nil at the start: which CPUs are reserved does not change with the machine.
func derive(cfg *config.Config, m *topology.Machine, at *cpumanager.Static) (
	machine.Hardware, error) {
	k := &cfg.Kubelet
	h := machine.Hardware{Machine: m}
	var err error
	if h.Options, err = topology.ParseOptions(k.TopologyManagerPolicyOptions, m); err != nil {
		return h, err
	}
	if h.Reservation, err = reservation(cfg, m); err != nil {
		return h, err
	}
	h.Allocatable = node.Allocatable(m, h.Reservation)
	if at != nil {
		h.CPUs = at.On(m)
	} else if k.CPUManagerPolicy == "static" {
		if h.CPUs, err = staticPolicy(cfg, m, h.Reservation); err != nil {
			return h, err
		}
	}
	if k.MemoryManagerPolicy == kubeletconfig.StaticMemoryManagerPolicy {
		h.Memory, err = memory.New(m, memory.Reserved(k.ReservedMemory))
	}
	return h, err
}

// machineChanged brings what depends on the hardware in line with it.
func (a *Agent) machineChanged(ctx context.Context, before, after machine.Hardware) {
	log := klog.FromContext(ctx)
	log.Info("The machine changed",
		"cpus", after.Machine.Online(), "before", before.Machine.Online(),
		"allocatable", after.Allocatable, "before", before.Allocatable)
	if tree := a.parts.chores.cgroups; tree != nil {
		err := a.limitPods(ctx, tree, after)
		if err == nil {
			err = tree.UpdateQOS(ctx, a.pods.active())
		}
		if err != nil {
			log.Error(err, "The limits of all pods together stay until the next change")
		}
	}
	a.sayOvercommitted(ctx, after)
	a.queue.Poke()
	a.pool.Wake()
	a.parts.chores.export()
}

// limitPods makes kubepods and the QoS groups, with what all pods together may use.
func (a *Agent) limitPods(ctx context.Context, tree *cgroups.Tree, h machine.Hardware) error {
	var reserved []v1.ResourceList
	for _, enforce := range a.cfg.Kubelet.EnforceNodeAllocatable {
		if enforce == "pods" {
			reserved = append(reserved, h.Reservation.Reserved)
		}
	}
	capacity := node.Capacity(h.Machine, h.Reservation.MaxPods)
	// Pids of all pods together are not limited: podPidsLimit is each pod's.
	return tree.EnsureNode(ctx, cgroups.NodeResources(capacity, 0, reserved...))
}
