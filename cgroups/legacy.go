package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup1"
	oci "github.com/opencontainers/cgroups"
	ocifs "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/apimachinery/pkg/util/sets"
)

// legacy is cgroup v1: one hierarchy per controller, each in a directory of the mount point.
type legacy struct {
	mount      string
	subsystems []cgroup1.Subsystem
}

// newLegacy finds the controllers mounted in mount and checks that root exists in each.
func newLegacy(mount, root string) (*legacy, error) {
	for _, name := range []cgroup1.Name{
		cgroup1.Cpu, cgroup1.Cpuacct, cgroup1.Cpuset, cgroup1.Memory,
	} {
		if !exists(filepath.Join(mount, string(name))) {
			return nil, fmt.Errorf("cgroup controller %s is not mounted at %s: mount it (cgroup "+
				"v1), or mount cgroup v2 there", name, filepath.Join(mount, string(name)))
		}
	}
	l := &legacy{mount: mount}
	for _, s := range subsystems(mount) {
		dir := filepath.Join(mount, string(s.Name()))
		if !exists(dir) || apart(mount, string(cgroup1.Cpu)) && !apart(mount, string(s.Name())) {
			continue // systemd leaves directories of controllers that it could not mount
		}
		if s.Name() != hybrid && !exists(filepath.Join(dir, root)) {
			return nil, rootMissing(root, filepath.Join(dir, root))
		}
		l.subsystems = append(l.subsystems, s)
	}
	return l, nil
}

func (l *legacy) dir(controller, path string) directory {
	return directory{path: filepath.Join(l.mount, controller, path)}
}

// apart reports whether something is mounted at the directory name in mount.
func apart(mount, name string) bool {
	var above, here syscall.Stat_t
	return syscall.Stat(mount, &above) == nil && syscall.Stat(filepath.Join(mount, name), &here) == nil &&
		above.Dev != here.Dev
}

func rootMissing(root, dir string) error {
	return fmt.Errorf("cgroup root %q: %s does not exist: make it, or change cgroupRoot", root, dir)
}

// hybrid is the directory where a host with cgroup v1 also mounts v2, for programs that only know
// v2. The runtime makes containers' cgroups there too, and those above them.
const hybrid = cgroup1.Name("unified")

// subsystems returns the controllers that a container can be in. A pod's cgroup is made and removed
// in all of them, since the runtime makes the container's there and leaves the pod's behind.
func subsystems(mount string) []cgroup1.Subsystem {
	all := []cgroup1.Subsystem{
		cgroup1.NewNamed(mount, cgroup1.SystemdDbus),
		cgroup1.NewNamed(mount, hybrid),
		cgroup1.NewCpuset(mount),
		cgroup1.NewCpu(mount),
		cgroup1.NewCpuacct(mount),
		cgroup1.NewMemory(mount),
		cgroup1.NewPids(mount),
		cgroup1.NewBlkio(mount),
		cgroup1.NewDevices(mount),
		cgroup1.NewFreezer(mount),
		cgroup1.NewNetCls(mount),
		cgroup1.NewNetPrio(mount),
		cgroup1.NewPerfEvent(mount),
		cgroup1.NewRdma(mount),
	}
	if hugetlb, err := cgroup1.NewHugetlb(mount); err == nil { // error: this host has none
		all = append(all, hugetlb)
	}
	return all
}

func (l *legacy) hierarchy() ([]cgroup1.Subsystem, error) { return l.subsystems, nil }

func (l *legacy) apply(path string, r Resources) error {
	if _, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{},
		cgroup1.WithHierarchy(l.hierarchy)); err != nil {
		return err
	}
	values := r.legacy()
	for _, s := range l.subsystems {
		if set := setters[s.Name()]; set != nil {
			if err := set(l.dir(string(s.Name()), path).path, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// setters write values into the directory that a cgroup has for a controller.
var setters = map[cgroup1.Name]func(dir string, r *oci.Resources) error{
	cgroup1.Cpu:     new(ocifs.CpuGroup).Set,
	cgroup1.Memory:  new(ocifs.MemoryGroup).Set,
	cgroup1.Pids:    new(ocifs.PidsGroup).Set,
	cgroup1.Hugetlb: new(ocifs.HugetlbGroup).Set,
}

// legacy returns the values for cgroup v1. Unlimited memory also lifts the limit of memory and swap
// together, since the kernel refuses a limit of memory above that one.
func (r Resources) legacy() *oci.Resources {
	v := &oci.Resources{CpuShares: r.Shares, Memory: r.Memory}
	if r.Quota != 0 {
		v.CpuQuota, v.CpuPeriod = r.Quota, uint64(r.Period.Microseconds())
	}
	if r.Pids > 0 {
		v.PidsLimit = &r.Pids
	}
	for _, size := range slices.Sorted(maps.Keys(r.HugePages)) {
		v.HugetlbLimit = append(v.HugetlbLimit, &oci.HugepageLimit{
			Pagesize: PageSizeName(size), Limit: uint64(r.HugePages[size])})
	}
	return v
}

func (l *legacy) children(path string) ([]string, error) {
	seen := sets.New[string]()
	for _, s := range l.subsystems {
		names, err := childDirs(filepath.Join(l.mount, string(s.Name()), path))
		if err != nil {
			return nil, err
		}
		seen.Insert(names...)
	}
	return sets.List(seen), nil
}

func (l *legacy) kill(path string) (int, error) {
	var dirs []string
	for _, s := range l.subsystems {
		dirs = append(dirs, l.dir(string(s.Name()), path).path)
	}
	pids, err := processes(dirs...)
	if err != nil {
		return len(pids), err
	}
	for pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return len(pids), fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return len(pids), nil
}

func (l *legacy) remove(path string) error {
	control, err := cgroup1.Load(cgroup1.StaticPath(path), cgroup1.WithHierarchy(l.hierarchy))
	if errors.Is(err, cgroup1.ErrCgroupDeleted) { // it exists in no hierarchy
		return nil
	}
	if err != nil {
		return err
	}
	return control.Delete()
}
