package cgroups

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// unified is cgroup v2: one hierarchy whose controllers are enabled from the top down.
type unified struct {
	mount       string
	controllers []string // of those that we use, the root's
}

// newUnified checks that root exists and has the controllers that pods require.
func newUnified(mount, root string) (*unified, error) {
	dir := filepath.Join(mount, root)
	if !exists(dir) {
		return nil, rootMissing(root, dir)
	}
	file := filepath.Join(dir, "cgroup.controllers")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read controllers of the cgroup root: %w", err)
	}
	u := &unified{mount: mount}
	have := strings.Fields(string(text))
	for _, name := range []string{"cpu", "cpuset", "memory", "pids", "hugetlb"} {
		switch {
		case slices.Contains(have, name):
			u.controllers = append(u.controllers, name)
		case name != "pids" && name != "hugetlb":
			return nil, fmt.Errorf("cgroup controller %s is not in %s: enable it in the parent's "+
				"cgroup.subtree_control, or in the kernel", name, file)
		}
	}
	return u, nil
}

func (u *unified) dir(_, path string) directory {
	return directory{filepath.Join(u.mount, path), true}
}

// apply uses containerd's library: opencontainers' enables every controller of the machine, ignores
// errors of that, and knows only /sys/fs/cgroup.
func (u *unified) apply(path string, r Resources) error {
	control, err := cgroup2.NewManager(u.mount, path, &cgroup2.Resources{})
	if err != nil {
		return err
	}
	if err := control.ToggleControllers(u.controllers, cgroup2.Enable); err != nil {
		return err
	}
	if err := control.Update(u.resources(r)); err != nil {
		return err
	}
	return reserve(filepath.Join(u.mount, path), r.HugePages)
}

func (u *unified) resources(r Resources) *cgroup2.Resources {
	v2 := &cgroup2.Resources{CPU: &cgroup2.CPU{}}
	if r.Shares > 0 {
		v2.CPU.Weight = new(Weight(r.Shares))
	}
	if r.Quota != 0 {
		period := uint64(r.Period.Microseconds())
		quota := &r.Quota
		if r.Quota == Unlimited {
			quota = nil
		}
		v2.CPU.Max = cgroup2.NewCPUMax(quota, &period)
	}
	v2.Memory = unifiedMemory(r)
	if r.Pids > 0 && slices.Contains(u.controllers, "pids") {
		v2.Pids = &cgroup2.Pids{Max: r.Pids}
	}
	if len(r.HugePages) > 0 && slices.Contains(u.controllers, "hugetlb") {
		v2.HugeTlb = &cgroup2.HugeTlb{}
		for _, size := range slices.Sorted(maps.Keys(r.HugePages)) {
			*v2.HugeTlb = append(*v2.HugeTlb, cgroup2.HugeTlbEntry{
				HugePageSize: PageSizeName(size),
				Limit:        uint64(r.HugePages[size]),
			})
		}
	}
	return v2
}

func unifiedMemory(r Resources) *cgroup2.Memory {
	var m cgroup2.Memory
	if r.Memory == Unlimited {
		r.Memory = math.MaxInt64 // "max", for the kernel
	}
	if r.Memory > 0 {
		m.Max = &r.Memory
	}
	if r.Protection != nil {
		m.Min, m.Low = &r.Protection.Min, &r.Protection.Low
	}
	if r.High == Unlimited {
		r.High = math.MaxInt64
	}
	if r.High > 0 {
		m.High = &r.High
	}
	if m == (cgroup2.Memory{}) {
		return nil
	}
	return &m
}

func (u *unified) children(path string) ([]string, error) {
	return childDirs(filepath.Join(u.mount, path))
}

func (u *unified) kill(path string) (int, error) {
	pids, err := processes(filepath.Join(u.mount, path))
	if err != nil || len(pids) == 0 {
		return len(pids), err
	}
	control, err := cgroup2.Load(path, cgroup2.WithMountpoint(u.mount))
	if err != nil {
		return 0, err
	}
	return len(pids), control.Kill()
}

// remove uses containerd's library: opencontainers' waits up to a second for each busy cgroup.
func (u *unified) remove(path string) error {
	control, err := cgroup2.Load(path, cgroup2.WithMountpoint(u.mount))
	if err != nil {
		return err
	}
	_, err = steady(filepath.Join(u.mount, path), func() (struct{}, error) {
		return struct{}{}, control.Delete()
	})
	return err
}
