package machine

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// reservation returns kubeReserved plus systemReserved, what hard eviction keeps back unless that
// is ignored, and the number of pods. reservedSystemCPUs replaces both CPU reservations.
func reservation(cfg *config.Config, m *topology.Machine) (nodestatus.Reservation, error) {
	k := &cfg.Kubelet
	r := nodestatus.Reservation{Reserved: v1.ResourceList{}, Eviction: v1.ResourceList{}}
	for field, reserved := range map[string]map[string]string{
		"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved,
	} {
		list, err := config.ParseReserved(reserved)
		if err != nil {
			return r, fmt.Errorf("invalid configuration: %s: %w", field, err)
		}
		for name, q := range list {
			sum := r.Reserved[name]
			sum.Add(q)
			r.Reserved[name] = sum
		}
	}
	if k.ReservedSystemCPUs != "" {
		set, err := topology.ParseCPUs(k.ReservedSystemCPUs)
		if err != nil {
			return r, fmt.Errorf("invalid configuration: reservedSystemCPUs: %w", err)
		}
		r.Reserved[v1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
	}
	if text, ok := k.EvictionHard["memory.available"]; ok && !cfg.IgnoreEviction {
		threshold, set, err := config.ParseThreshold(text)
		if err != nil {
			return r, fmt.Errorf("invalid configuration: evictionHard[memory.available]: %w", err)
		}
		if set {
			held := threshold.Of(int64(m.MemoryBytes()))
			r.Eviction[v1.ResourceMemory] = *resource.NewQuantity(held, resource.BinarySI)
		}
	}
	r.MaxPods = int64(k.MaxPods)
	if k.PodsPerCore > 0 {
		r.MaxPods = min(r.MaxPods, int64(k.PodsPerCore)*int64(m.Online().Size()))
	}
	return r, nil
}

// addStorage adds the disk of the root directory, and what hard eviction keeps back of it, unless
// localStorageCapacityIsolation is off.
func addStorage(cfg *config.Config, h *Hardware) error {
	size, known := diskSize(cfg.RootDir)
	if !known || !ptr.Deref(cfg.Kubelet.LocalStorageCapacityIsolation, true) {
		return nil
	}
	const name = v1.ResourceEphemeralStorage
	h.Capacity[name] = *resource.NewQuantity(size, resource.BinarySI)
	text, ok := cfg.Kubelet.EvictionHard["nodefs.available"]
	if !ok || cfg.IgnoreEviction {
		return nil
	}
	threshold, set, err := config.ParseThreshold(text)
	if err != nil {
		return fmt.Errorf("invalid configuration: evictionHard[nodefs.available]: %w", err)
	}
	if set {
		h.Reservation.Eviction[name] = *resource.NewQuantity(threshold.Of(size), resource.BinarySI)
	}
	return nil
}

// diskSize returns the size of the disk of a directory, which may not exist yet.
func diskSize(dir string) (bytes int64, known bool) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil {
			return int64(s.Blocks) * s.Bsize, true
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, unix.ENOENT) || parent == dir {
			return 0, false
		}
		dir = parent
	}
}

// staticPolicy returns the CPU policy of the configuration, with its isolated CPUs.
func staticPolicy(cfg *config.Config, m *topology.Machine, r nodestatus.Reservation) (
	*cpumanager.Static, error) {
	text := cfg.Kubelet.ReservedSystemCPUs
	reserved, err := topology.ParseCPUs(text)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: reservedSystemCPUs: %w", err)
	}
	lent, err := config.ParseDriverCPUs(cfg.Placement.DriverCPUs)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: --dra-cpus: %w", err)
	}
	isolated, err := isolatedCPUs(cfg, m, reserved, lent)
	if err != nil {
		return nil, err
	}
	options, err := cpumanager.ParseOptions(cfg.Kubelet.CPUManagerPolicyOptions)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: cpuManagerPolicyOptions: %w", err)
	}
	if text == "" {
		reserved, err = cpumanager.Reserved(m, isolated.Union(lent), r.Reserved.Cpu().MilliValue(), options)
		if err != nil {
			return nil, err
		}
	}
	static, err := cpumanager.NewStatic(m, reserved, options)
	if err == nil && !isolated.IsEmpty() {
		if static, err = static.Isolating(isolated); err != nil {
			err = fmt.Errorf("invalid configuration: --isolated-cpus %s: %w",
				cfg.Placement.IsolatedCPUs, err)
		}
	}
	if err == nil && !lent.IsEmpty() {
		if static, err = static.Lending(lent); err != nil {
			err = fmt.Errorf("invalid configuration: --dra-cpus %s: %w", cfg.Placement.DriverCPUs, err)
		}
	}
	return static, err
}

// isolatedCPUs returns the CPUs of --isolated-cpus, without reserved ones and those of drivers; a list
// must not name any.
func isolatedCPUs(cfg *config.Config, m *topology.Machine, reserved, lent cpuset.CPUSet) (
	cpuset.CPUSet, error) {
	var isolated cpuset.CPUSet
	named, given, err := config.ParseIsolated(cfg.Placement.IsolatedCPUs)
	if err != nil {
		return isolated, fmt.Errorf("invalid configuration: --isolated-cpus: %w", err)
	}
	if !given {
		return m.Isolated().Difference(reserved).Difference(lent), nil
	}
	if both := named.Intersection(reserved); !both.IsEmpty() {
		return isolated, fmt.Errorf("invalid configuration: --isolated-cpus: CPUs %s are in "+
			"reservedSystemCPUs too; name them in one place only", both)
	}
	return named, nil
}
