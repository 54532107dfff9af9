package stats

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// Runtime provides the container runtime's statistics; cri.Client implements it.
type Runtime interface {
	Stats(ctx context.Context) (cri.Stats, error)
	Metrics(ctx context.Context) (cri.Metrics, error)
	ImageFilesystems(ctx context.Context) (
		images, containers *runtimeapi.FilesystemUsage, err error)
}

// Config says where to read, and which pods there are.
type Config struct {
	Node    string // its name
	Runtime Runtime
	// Running returns the agent's pods as the runtime last reported them, ordered by UID.
	Running func() []cri.Pod
	CPUs    func() CPUs // of the machine
	Host    Host
	Groups  Groups
	Proc    kernel.Proc
	Disks   DisksConfig
	// HugePagesCount: preallocated huge pages are not available as memory.
	HugePagesCount bool
	// Registry takes the node's own metrics; nil: they are not registered.
	Registry metrics.KubeRegistry
}

// CPUs counts the CPUs of a machine.
type CPUs struct{ Logical, Cores, Sockets int }

// Host identifies the boot, the installation and the hardware.
type Host struct{ BootID, MachineID, SystemUUID string }

// Groups describes the cgroups to read.
type Groups struct {
	kernel.Groups
	Daemons DaemonGroups
	// Pods is the path of the cgroup of all pods; Paths returns the paths of one pod. Both are empty
	// without cgroupsPerQOS.
	Pods  string
	Paths func(types.UID) (cgroups.PodPaths, error)
}

// paths returns the cgroups of a pod; none if they cannot be found.
func (g *Groups) paths(p *Pod) cgroups.PodPaths {
	if g.Paths == nil {
		return cgroups.PodPaths{}
	}
	found, err := g.Paths(types.UID(p.Stats.PodRef.UID))
	if err != nil {
		return cgroups.PodPaths{}
	}
	return found
}

// DaemonGroups are the paths of the cgroups of what runs beside pods. The cgroups of the runtime and the
// system are read if they are named; without a name, the agent's is the one that it is in.
type DaemonGroups struct{ Agent, Runtime, System string }

// Collector reads statistics on demand.
type Collector struct {
	cfg      Config
	boot     time.Time
	started  time.Time // when the collector was made, with the agent
	snapshot latest[reading]
	metrics  latest[cri.Metrics]
	disks    *Disks
	layers   layers
}

// reading is a snapshot and the counters that the next reading needs.
type reading struct {
	*Snapshot // nil: none succeeded
	rates     rates
}

// New reads nothing of pods yet. Run must be called for the disks.
func New(c Config) (*Collector, error) {
	boot, err := c.Proc.BootTime()
	if err != nil {
		return nil, err
	}
	s := &Collector{cfg: c, boot: boot, started: time.Now()}
	s.disks, s.layers.cfg = newDisks(c), &s.cfg
	s.snapshot.read = s.read
	s.metrics.read = func(ctx context.Context, last cri.Metrics) (cri.Metrics, error) {
		m, err := c.Runtime.Metrics(ctx)
		if err != nil {
			return last, err
		}
		return m, nil
	}
	return s, s.register(c.Registry)
}

// Run measures disks until ctx ends.
func (c *Collector) Run(ctx context.Context) error { return c.disks.run(ctx) }

// Snapshot returns the present snapshot, or with an error the last one that could be read. It is
// nil if there was none.
func (c *Collector) Snapshot(ctx context.Context) (*Snapshot, error) {
	r, err := c.snapshot.get(ctx)
	return r.Snapshot, err
}

// Measure returns a summary whose filesystems are read for it, and the snapshot that it is made of.
// Of what cannot be read both have the last values; it is an error if there are none.
//
// anew: it also looks at writable layers that the runtime has not measured lately: containerd does
// so each 10 s, in which a pod fills a disk. It waits for that a fraction of a second. Of layers
// that take longer, or are not found, the runtime's word stays.
func (c *Collector) Measure(ctx context.Context, anew bool) (statsapi.Summary, *Snapshot, error) {
	s, err := c.Snapshot(ctx)
	if s == nil {
		return statsapi.Summary{}, nil, err
	}
	if anew {
		s = c.layers.anew(ctx, s)
	}
	u := c.disks.Get()
	c.disks.filesystems(ctx, &u)
	return Summary(s, u), s, nil
}

// Recent returns a summary that was made of a snapshot which is not older than that, and of what
// disks were found to hold last. With an error it has the last values, or none.
func (c *Collector) Recent(ctx context.Context, age time.Duration) (statsapi.Summary, error) {
	r, err := c.snapshot.within(ctx, age)
	if r.Snapshot == nil {
		return statsapi.Summary{}, err
	}
	return Summary(r.Snapshot, c.disks.Get()), err
}

// read reads the node, which is cheap and cannot hang, and the runtime's statistics of pods. If
// those fail, the pods of the last snapshot stay.
func (c *Collector) read(ctx context.Context, last reading) (reading, error) {
	groups := c.cfg.Groups.Reader()
	s := &Snapshot{At: time.Now()}
	nodeErr := c.node(groups, s)
	counted, err := c.cfg.Runtime.Stats(ctx)
	if err != nil && last.Snapshot == nil {
		return last, errors.Join(nodeErr, err)
	}
	next := rates{}
	if err == nil {
		p := podReader{running: index(c.cfg.Running()), reader: groups, groups: &c.cfg.Groups}
		s.Pods = p.pods(counted)
	} else {
		maps.Copy(next, last.rates)
	}
	for _, cpu := range counters(s) {
		last.rates.next(next, cpu.of, cpu.CPUStats)
	}
	if err != nil {
		s.Pods = last.Pods // complete, and shared with the last snapshot
	}
	return reading{s, next}, errors.Join(nodeErr, err)
}
