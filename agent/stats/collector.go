package stats

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/stats/kernel"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
)

// Runtime is what the container runtime counts; cri.Client is one.
type Runtime interface {
	Stats(ctx context.Context) (cri.Stats, error)
	Metrics(ctx context.Context) (cri.Metrics, error)
	ImageFilesystems(ctx context.Context) (
		images, containers *runtimeapi.FilesystemUsage, err error)
}

// Config is where to read, and what pods there are.
type Config struct {
	Node    string // its name
	Runtime Runtime
	// Running is what the runtime has of the agent's pods, ordered by UID.
	Running func() []cri.Pod
	CPUs    func() CPUs // of the machine
	Host    Host
	Groups  Groups
	Proc    kernel.Proc
	Disks   DisksConfig
	// Registry takes the metrics of the node's own; nil: there are none.
	Registry metrics.KubeRegistry
}

// CPUs are how many a machine has.
type CPUs struct{ Logical, Cores, Sockets int }

// Host is what the machine is known by: of this boot, of this installation, of the hardware.
type Host struct{ BootID, MachineID, SystemUUID string }

// Groups are the cgroups.
type Groups struct {
	kernel.Groups
	// Pods is the path of the cgroup that all pods are in, Paths those of a pod. Without
	// cgroupsPerQOS both are empty.
	Pods  string
	Paths func(types.UID) (cgroups.PodPaths, error)
}

// Collector reads when it is asked.
type Collector struct {
	cfg      Config
	boot     time.Time
	snapshot latest[reading]
	metrics  latest[cri.Metrics]
	disks    *Disks
}

// reading is a snapshot and what the next one needs of it.
type reading struct {
	*Snapshot // nil: none succeeded
	rates     rates
}

// New reads nothing of pods yet. Run is for the disks.
func New(c Config) (*Collector, error) {
	boot, err := c.Proc.BootTime()
	if err != nil {
		return nil, err
	}
	s := &Collector{cfg: c, boot: boot}
	s.disks = newDisks(c)
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

// Snapshot is that of the moment, or the last that could be read: then with an error, and it is nil
// when there was none.
func (c *Collector) Snapshot(ctx context.Context) (*Snapshot, error) {
	r, err := c.snapshot.get(ctx)
	return r.Snapshot, err
}

// read reads the node, which costs little and cannot hang, and what the runtime tells of pods. When
// that fails pods are as they were.
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
		p := podReader{running: index(c.cfg.Running()), groups: groups, paths: c.cfg.Groups.Paths}
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
