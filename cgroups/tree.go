package cgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

const defaultMount = "/sys/fs/cgroup"

// Config says where the tree is and who makes it.
type Config struct {
	// Root is cgroupRoot, the existing parent of kubepods; "" and "/" mean the top.
	Root   string
	Driver Driver // "" is Cgroupfs
	// Mount is the mount point of cgroups; "" is /sys/fs/cgroup.
	Mount string
	// HugePages is the directory with the page sizes of the host; "" is /sys/kernel/mm/hugepages.
	HugePages string
	// MemoryQoS only applies to cgroup v2.
	MemoryQoS MemoryQoS
	// Registry takes the metrics; nil: nothing is measured.
	Registry metrics.KubeRegistry
}

// Tree is the tree of pods' cgroups. Several goroutines may call its methods, but only one at a
// time for one pod.
type Tree struct {
	writer
	root    group
	sizes   []int64 // huge page sizes of the host in bytes, ascending
	unified bool    // cgroup v2
	memory  MemoryQoS
	// protected are the gauges of pods' protected memory; nil if the gate is off.
	protected struct{ min, low *metrics.Gauge }
}

// hierarchy is one version of the kernel's cgroup interface. Paths start below its mount point.
type hierarchy interface {
	// dir returns the directory in which a controller has its files of the cgroup.
	dir(controller, path string) directory
	// apply creates the cgroup and its parents if they do not exist, and writes r.
	apply(path string, r Resources) error
	// existing returns a hierarchy whose apply creates nothing for a cgroup that others made, or
	// the missing directory that r would be written to.
	existing(path string, r Resources) (h hierarchy, lacks string)
	// add moves a process into the existing cgroup.
	add(path string, pid int) error
	// children lists the cgroups directly in path, each once; none if path does not exist.
	children(path string) ([]string, error)
	// kill sends SIGKILL to every process in and below path and returns their number.
	kill(path string) (int, error)
	// remove removes path and all below it, which must hold no process. It succeeds if path does
	// not exist.
	remove(path string) error
}

// New detects the host's cgroup version and checks that pods can have cgroups there. It changes
// nothing.
func New(c Config) (*Tree, error) {
	c.Driver = cmp.Or(c.Driver, Cgroupfs)
	c.Mount = cmp.Or(c.Mount, defaultMount)
	c.HugePages = cmp.Or(c.HugePages, "/sys/kernel/mm/hugepages")
	unified := isUnified(c.Mount)
	if !unified {
		c.MemoryQoS.Reserve = false
	}
	var s metric.Set
	t := &Tree{writer: writer{driver: c.Driver}, unified: unified, memory: c.MemoryQoS}
	t.took = s.Histograms("kubelet_cgroup_manager_duration_seconds",
		"Duration in seconds of making (create), writing (update) and removing (destroy) cgroups.",
		metrics.DefBuckets, "operation_type")
	if c.MemoryQoS.On {
		t.protected.min = s.Gauge("kubelet_memory_qos_node_memory_min_bytes",
			"Memory in bytes of guaranteed pods that is never reclaimed.")
		t.protected.low = s.Gauge("kubelet_memory_qos_node_memory_low_bytes",
			"Memory in bytes of burstable pods that is reclaimed only when no other is left.")
	}
	var err error
	switch c.Driver {
	case Cgroupfs:
	case Systemd:
		if t.systemd, err = newSystemd(unified); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("cgroup driver %q: want %s or %s", c.Driver, Cgroupfs, Systemd)
	}
	if t.root, err = rootGroup(c.Driver, c.Root); err != nil {
		return nil, err
	}
	if t.sizes, err = hugePageSizes(c.HugePages); err != nil {
		return nil, err
	}
	if t.kernel, err = openHierarchy(c.Mount, t.root.path(c.Driver)); err != nil {
		return nil, err
	}
	return t, s.Register(c.Registry)
}

// isUnified tells cgroup v2 from v1. A host that mounts both has its controllers in v1.
func isUnified(mount string) bool { return exists(filepath.Join(mount, "cgroup.controllers")) }

// openHierarchy checks that pods can have cgroups in root.
func openHierarchy(mount, root string) (hierarchy, error) {
	if isUnified(mount) {
		return newUnified(mount, root)
	}
	return newLegacy(mount, root)
}

// EnsureNode makes the cgroup of all pods with these values, and the QoS classes' cgroups in it,
// whose memory has no limit until UpdateQOS sets one.
func (t *Tree) EnsureNode(ctx context.Context, node Resources) error {
	if err := t.create(ctx, t.root.child(kubepods), node); err != nil {
		return err
	}
	values := QOSResources(nil, t.sizes, t.memory)
	delete(values, v1.PodQOSGuaranteed)
	for class, r := range values {
		// Values of running pods stay until these pods are known.
		if r.Protection = nil; class == v1.PodQOSBurstable {
			r.Shares = 0
		}
		r.Memory = Unlimited
		values[class] = r
	}
	return t.updateQOS(ctx, values)
}

// UpdateQOS updates the cgroups of the QoS classes for the pods on the node, which are those that
// have or will have containers.
func (t *Tree) UpdateQOS(ctx context.Context, pods []*v1.Pod, reserve Reserve) error {
	values := QOSResources(pods, t.sizes, t.memory)
	for class, limit := range reserve.limits(pods) {
		r := values[class]
		r.Memory = t.dir("memory", qosGroup(t.root, class)).fit(limit)
		values[class] = r
	}
	all, burstable := values[v1.PodQOSGuaranteed], values[v1.PodQOSBurstable]
	if !t.unified {
		delete(values, v1.PodQOSGuaranteed) // kubepods depends on pods in nothing else
	}
	if err := t.updateQOS(ctx, values); err != nil {
		return err
	}
	if t.memory.On {
		low := burstable.Protection.Low
		t.protected.min.Set(float64(all.Protection.Min - low))
		t.protected.low.Set(float64(low))
	}
	return nil
}

func (t *Tree) updateQOS(ctx context.Context, values map[v1.PodQOSClass]Resources) error {
	defer t.done("update", time.Now())
	for _, class := range classes() {
		if r, ok := values[class]; ok {
			if err := t.ensure(ctx, qosGroup(t.root, class), r); err != nil {
				return err
			}
		}
	}
	return nil
}

// EnsurePod makes the pod's cgroup with these values.
func (t *Tree) EnsurePod(ctx context.Context, pod *v1.Pod, r Resources) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	return t.create(ctx, podGroup(t.root, podspec.QOSClass(pod), pod.UID), r)
}

// PodParent returns the pod's cgroup in the form of a sandbox's cgroup_parent in CRI.
func (t *Tree) PodParent(pod *v1.Pod) string {
	return podGroup(t.root, podspec.QOSClass(pod), pod.UID).path(t.driver)
}

func (t *Tree) create(ctx context.Context, g group, r Resources) error {
	defer t.done("create", time.Now())
	return t.ensure(ctx, g, r)
}

func (t *Tree) ensure(ctx context.Context, g group, r Resources) error {
	if r.HugePages != nil {
		r.HugePages = everySize(r.HugePages, t.sizes)
	}
	return t.write(ctx, t.kernel, g, r)
}

// everySize returns a limit for exactly the page sizes of the host, 0 where limits has none.
func everySize(limits map[int64]int64, sizes []int64) map[int64]int64 {
	all := make(map[int64]int64, len(sizes))
	for _, size := range sizes {
		all[size] = limits[size]
	}
	return all
}

// hugePageSizes reads the entries of a directory like /sys/kernel/mm/hugepages: hugepages-2048kB. A
// kernel without huge pages has no such directory. opencontainers' HugePageSizes leaves out what
// it cannot parse.
func hugePageSizes(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list huge page sizes: %w", err)
	}
	var sizes []int64
	for _, e := range entries {
		text, _ := strings.CutPrefix(e.Name(), "hugepages-")
		kb, err := strconv.ParseInt(strings.TrimSuffix(text, "kB"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse huge page size %s/%s: %w", dir, e.Name(), err)
		}
		sizes = append(sizes, kb*1024)
	}
	slices.Sort(sizes)
	return sizes, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
