package resources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Runtime is the container runtime.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string,
		resources *runtimeapi.ContainerResources) error
	UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (
		*runtimeapi.UpdatePodSandboxResourcesResponse, error)
}

// Observer knows the pods in the runtime.
type Observer interface {
	All() []cri.Pod
	Get(uid types.UID) (cri.Pod, bool)
	Reread(ctx context.Context, uid types.UID) (cri.Pod, error)
}

// Config holds what a Loop depends on.
type Config struct {
	// Hardware returns the present machine and its policies. Without a CPU policy containers get no
	// set, and those that have one from an earlier policy get all online CPUs.
	Hardware func() machine.Hardware
	State    func() allocation.State
	// Pod returns a pod's spec as admitted. While no source has named the pod, its requests and
	// limits stay as they are.
	Pod func(types.UID) (*v1.Pod, bool)
	// Had returns what ran of a pod when the agent started; nil: unknown. A nil function knows of none.
	Had      func(types.UID) *podspec.Resources
	Settings Settings
	Runtime  Runtime
	Observer Observer
	Cgroups  Cgroups // nil: pods get no cgroups of ours, and the runtime's report counts
	// Changed receives an element when State or Hardware changes; nil: never.
	Changed <-chan struct{}
	// Settled is called for a pod that was followed (Loop.Follow): what runs of it has what it was
	// allocated, or err keeps it from that; then it is followed on. Calls for different pods overlap. nil: no pod is
	// followed.
	Settled func(uid types.UID, err error)
	// ResizeVolume gives an emptyDir in memory another size in bytes; nil: no volume is resized.
	ResizeVolume func(uid types.UID, volume string, size int64) error
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
	// Repaired is called when a foreign change of a cgroup was undone, Unread for each cgroup that
	// exists and could not be read. Both are called from several goroutines.
	Repaired func(Kind)
	Unread   func()
}

// Kind is a kind of setting of a cgroup, in words for the log.
type Kind string

// The kinds. The first three are repaired after foreign changes.
const (
	CPUSet      Kind = "CPU set"
	MemoryNodes Kind = "memory nodes"
	CPUQuota    Kind = "CPU quota"
	CPUShares   Kind = "CPU shares"
	Memory      Kind = "memory"
	VolumeSize  Kind = "size of a volume"
)

// Loop brings the resources of containers and pods in line with what they are to have.
type Loop struct {
	cfg       Config
	wake      chan struct{} // capacity 1
	rounds    rounds
	creations creations
	pool      pool
	followed  followed
	// enforced is the state that the last round has enforced without an error.
	enforced atomic.Pointer[allocation.State]

	// Run owns the fields below.
	records records
	on      policies // the machine that the groups above were last widened for
}

// policies identifies a machine by its policies.
type policies struct {
	cpus *cpumanager.Static
	mems *memory.Static
}

// New returns a loop, whose rounds Run does.
func New(cfg Config) *Loop {
	if cfg.Had == nil {
		cfg.Had = func(types.UID) *podspec.Resources { return nil }
	}
	return &Loop{cfg: cfg, wake: make(chan struct{}, 1), followed: followed{pods: map[types.UID]*progress{}}}
}

// Run does a round each period, after each Wake and after each change, until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.Tick(l.cfg.Period)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-l.wake:
		case <-l.cfg.Changed:
		}
		joined := l.rounds.begin()
		err := l.enforce(ctx)
		if joined != nil {
			joined.err = err
			close(joined.done)
		} else if err != nil && ctx.Err() == nil && !errors.As(err, new(restingError)) {
			klog.FromContext(ctx).Info("Updating the CPU sets of containers failed and is tried again",
				"after", l.cfg.Period, "err", err)
		}
	}
}

// Wake makes Run do a round soon.
func (l *Loop) Wake() { await.Wake(l.wake) }

// Shared returns the CPUs of containers without exclusive CPUs.
func (l *Loop) Shared() cpuset.CPUSet { return l.Node().shared().CPUSet }

// Node returns what containers and pods are to have now.
func (l *Loop) Node() Node { return l.node(l.cfg.Hardware()) }

func (l *Loop) node(h machine.Hardware) Node {
	n := newNode(l.cfg.Settings, h, l.cfg.State())
	n.shared = func() cpus { return l.pool.of(h, n.state) }
	return n
}

// Enter returns the resources that a container is about to be created with. For an exclusive
// container it returns only when no other container is on its CPUs: after a round of Run that began
// when they were committed. The caller must call leave when the container has started or failed to.
func (l *Loop) Enter(ctx context.Context, pod *v1.Pod, c *v1.Container) (
	r *runtimeapi.LinuxContainerResources, leave func(), err error) {
	n, leave := l.Node(), func() {}
	switch own := n.state.Pods[pod.UID].Containers[c.Name].CPUs(); {
	case n.hardware.CPUs == nil:
	case own.IsEmpty():
		// Without a set the container would run on all CPUs, including exclusive ones.
		if err := n.hardware.CPUs.CheckShared(n.state.CPUs()); err != nil {
			return nil, nil, err
		}
		made := l.creations.enter(pod.UID, func() cpuset.CPUSet {
			n = l.Node()
			return n.shared().CPUSet
		})
		leave = func() { l.leave(made) }
	case n.place(pod.UID, c.Name, pod, nil).cpus.IsEmpty():
		return nil, nil, fmt.Errorf("the container's own CPUs %s are offline: bring "+
			"them online, or delete the pod so that it gets others", own)
	case !l.enforcedFor(pod.UID, c.Name, own):
		if err := l.join(ctx); err != nil {
			return nil, nil, fmt.Errorf("free CPUs %s of other containers: %w", own, err)
		}
	}
	return n.container(pod, c, n.place(pod.UID, c.Name, pod, nil)), leave, nil
}

// enforcedFor reports whether a round has kept other containers off a container's own CPUs.
func (l *Loop) enforcedFor(uid types.UID, container string, own cpuset.CPUSet) bool {
	state := l.enforced.Load()
	return state != nil && state.Pods[uid].Containers[container].CPUs().Equals(own)
}

func (l *Loop) leave(c *creation) {
	if l.creations.leave(c) && !l.Shared().Equals(c.cpus) {
		l.Wake() // the pool changed meanwhile
	}
}

// join waits for a round that begins after the call, and returns its error.
func (l *Loop) join(ctx context.Context) error {
	r := l.rounds.join()
	l.Wake()
	if !await.On(ctx, r.done) {
		return ctx.Err()
	}
	return r.err
}

// enforce gives every container and pod what it lacks. The error is about CPU sets.
func (l *Loop) enforce(ctx context.Context) error {
	due := l.followed.due() // before their specs are read
	n := l.node(l.followMachine(ctx))
	if n.hardware.CPUs != nil {
		if err := l.creations.await(ctx, n.shared().CPUSet, l.cfg.Observer); err != nil {
			return err
		}
	}
	r := reader{&n, l.cfg.Cgroups, l.cfg.Unread, l.cfg.Pod, l.cfg.Had}
	var found []live
	found, l.records = r.all(ctx, l.cfg.Observer.All(), l.records)
	v := compare(found, &n, time.Now())
	u := &update{node: &n, cfg: l.cfg, creations: &l.creations, reader: r, failed: v.held}
	u.all(ctx, v.lacks)
	l.settle(ctx, due, found)
	if len(u.errs.cpus)+len(u.errs.rest) > 0 {
		l.on = policies{} // perhaps the groups above no longer have the CPUs
	}
	if len(u.errs.rest) > 0 && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Updating containers and pods failed and is tried again",
			"err", errors.Join(u.errs.rest...))
	}
	if len(u.errs.cpus) == 0 && len(v.resting) > 0 {
		return restingError{errors.Join(v.resting...)}
	}
	if len(u.errs.cpus) == 0 {
		l.enforced.Store(&n.state)
	}
	return errors.Join(u.errs.cpus...)
}

// followMachine widens the groups above the containers when the machine has other CPUs or memory.
func (l *Loop) followMachine(ctx context.Context) machine.Hardware {
	hardware := l.cfg.Hardware()
	now := policies{hardware.CPUs, hardware.Memory}
	if l.on == now {
		return hardware
	}
	var errs []error
	if l.cfg.Cgroups != nil && now.cpus != nil {
		errs = append(errs, l.cfg.Cgroups.WidenCPUs())
	}
	if l.cfg.Cgroups != nil && now.mems != nil {
		errs = append(errs, l.cfg.Cgroups.WidenMems())
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err,
			"The cgroups of pods have not all CPUs or memory nodes; it is tried again")
		return hardware
	}
	l.on = now
	return hardware
}

// rounds connects callers that wait for a round with Run.
type rounds struct {
	mu   sync.Mutex // guards next
	next *round     // nil: no caller has joined
}

// round is one round of updates.
type round struct {
	done chan struct{}
	err  error // valid once done is closed
}

// join returns the next round.
func (r *rounds) join() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	return r.next
}

// begin takes the round that callers have joined, nil if none has. Later callers join the next one.
func (r *rounds) begin() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	return next
}
