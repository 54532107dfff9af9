package machine

import (
	"fmt"
	"os"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/memory"
)

// period is the time between two reads of the machine.
const period = 10 * time.Second

// Open discovers the machine of the configuration, which is followed unless it comes from a file.
// The error says what does not fit together on it.
func Open(cfg *config.Config) (*Current, error) {
	m, err := discover.Open(cfg.TopologyFrom)
	if err != nil {
		return nil, err
	}
	first, err := Of(cfg, m)
	if err != nil {
		return nil, err
	}
	follow := Config{
		Derive: func(m *topology.Machine) (Hardware, error) { return derive(cfg, m, first.CPUs) },
		Period: period,
	}
	root := cfg.TopologyFrom
	if info, err := os.Stat(root); root == "" || err == nil && info.IsDir() {
		follow.Read = func(now *topology.Machine) (*topology.Machine, error) {
			return discover.Refresh(root, now)
		}
		follow.Sign = func() string {
			online, err := discover.OnlineCPUs(root)
			if err != nil {
				return err.Error() // Read reports the error, and its end
			}
			return online
		}
	}
	return New(follow, first), nil
}

// Of returns the hardware of machine m for an agent that starts with the configuration. The error
// says what does not fit together.
func Of(cfg *config.Config, m *topology.Machine) (Hardware, error) {
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

// drift is the share by which a machine's total memory may change with a reboot: another kernel,
// firmware or crash kernel may keep tens or hundreds of MiB more or less.
const drift = 0.02

// slack returns by how many bytes a percentage in evictionHard[memory.available] may change with the
// machine's memory; 0 for a quantity.
func slack(cfg *config.Config, m *topology.Machine) int64 {
	threshold, set, err := config.ParseThreshold(cfg.Kubelet.EvictionHard["memory.available"])
	if err != nil || !set || cfg.IgnoreEviction {
		return 0 // derive has said what is wrong
	}
	return int64(threshold.Part * drift * float64(m.MemoryBytes()))
}

// derive returns the hardware of machine m under the configuration. at is the CPU policy that the
// agent started with, nil at the start: the reserved CPUs do not change with the machine.
func derive(cfg *config.Config, m *topology.Machine, at *cpumanager.Static) (
	Hardware, error) {
	k := &cfg.Kubelet
	h := Hardware{Machine: m}
	if cfg.Placement.CPUDriver {
		h.CPUDriver = claim.CPUDriver
	}
	var err error
	if h.Options, err = topology.ParseOptions(k.TopologyManagerPolicyOptions, m); err != nil {
		return h, err
	}
	if h.Reservation, err = reservation(cfg, m); err != nil {
		return h, err
	}
	h.Capacity = nodestatus.Capacity(m, h.Reservation.MaxPods)
	if err = addStorage(cfg, &h); err != nil {
		return h, err
	}
	h.Allocatable = h.Reservation.Of(h.Capacity)
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
