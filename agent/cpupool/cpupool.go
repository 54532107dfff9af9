// Package cpupool keeps the CPU sets of containers equal to what is assigned.
//
// A container gets its set when it is created. The shared pool shrinks when CPUs are assigned to a
// container alone, and every container in the pool has to leave them before that container
// starts:
//
//	commit of the assignment
//	  -> Enter(exclusive container) joins the next round of updates:
//	       containers being created with an older pool are waited for,
//	       then every container whose set differs from what is wanted is updated
//	  -> CreateContainer, StartContainer
//
// Run does one round after the other. A round serves everyone who joined before it began, so that
// many exclusive containers at once cost few rounds.
//
// What is wanted is computed from the committed assignments and the CPUs that are online. What is
// comes from the kernel: the cgroup of each container is read in each round, one small file.
// Where that cannot be had, the runtime's own report counts, and the updates since then. In steady
// state there is nothing to do.
//
// What belongs to a set goes the same way: the memory nodes that a container was created with, and
// the CPU quota of containers with CPUs of their own and of their pods, which is none for as long
// as the CPUs are. These make nobody wait.
//
// So a round is: wanted, what containers should have; reader, what they have; compare, the
// difference; update, which brings it about. records are what is remembered from round to round.
//
// All changes of containers go through the runtime, which would undo others. One that has no effect
// is tried again after a while that grows.
package cpupool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/memory"
)

// Runtime is what the pool asks of the container runtime.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string,
		resources *runtimeapi.ContainerResources) error
}

// Observer knows what runs.
type Observer interface {
	All() []cri.Pod
	Get(uid types.UID) (cri.Pod, bool)
	Reread(ctx context.Context, uid types.UID) (cri.Pod, error)
}

// Config is what a Pool works with.
type Config struct {
	// Hardware is the machine as it is now, with the policies on it. Without a CPU policy
	// containers get no set, and those that were given one under another policy get all that is
	// online.
	Hardware func() machine.Hardware
	State    func() allocation.State
	Runtime  Runtime
	Observer Observer
	Cgroups  Cgroups // nil: what the runtime reports is believed
	// Limit is what limits a container to that many CPUs while they are not its own; nil: nothing
	// does.
	Limit func(cpus int) cgroups.CPULimit
	// Asked is how many CPUs of its own a container asked for, 0 if it has no others than these; not
	// known: its quota is left alone.
	Asked func(uid types.UID, container string) (cpus int, known bool)
	// PodLimit is the CPU quota that the cgroup of a pod should have, zero: it is left alone. It is
	// asked about pods in which a container has CPUs of its own.
	PodLimit func(uid types.UID) cgroups.CPULimit
	// Changed has a value when State or Hardware is another; nil: never.
	Changed <-chan struct{}
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
	// Repaired is told of what somebody else had changed in a cgroup, Unread of each cgroup that
	// could not be read although it is there, both from several goroutines.
	Repaired func(Repair)
	Unread   func()
}

// Repair is what was put right in a cgroup.
type Repair string

// The repairs, in words for the log.
const (
	CPUSet      Repair = "CPU set"
	MemoryNodes Repair = "memory nodes"
	CPUQuota    Repair = "CPU quota"
)

// Pool gives containers their CPU sets and keeps them.
type Pool struct {
	cfg       Config
	wake      chan struct{} // capacity 1
	rounds    rounds
	creations creations

	// Run's own.
	records records
	on      policies // the groups above have room for their machine
}

// policies are those that have containers' sets follow the machine, on one machine.
type policies struct {
	cpus *cpumanager.Static
	mems *memory.Static
}

// New returns a pool; Run keeps it.
func New(cfg Config) *Pool {
	return &Pool{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Run does a round each period, after each Wake and after each change, until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	tick := time.Tick(p.cfg.Period)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-p.wake:
		case <-p.cfg.Changed:
		}
		joined := p.rounds.begin()
		err := p.enforce(ctx)
		if joined != nil {
			joined.err = err
			close(joined.done)
		} else if err != nil && ctx.Err() == nil && !errors.As(err, new(restingError)) {
			klog.FromContext(ctx).Info("Updating the CPU sets of containers is tried again",
				"after", p.cfg.Period, "err", err)
		}
	}
}

// Wake has Run do a round soon.
func (p *Pool) Wake() { await.Wake(p.wake) }

// Shared is where containers without CPUs of their own run now.
func (p *Pool) Shared() cpuset.CPUSet { return shared(p.cfg.Hardware(), p.cfg.State()) }

// Enter says where a container that is about to be created may run, and whether the CPUs are its
// own: those of them that are online. For a container with CPUs of its own it returns when no other
// container is on them, which needs Run. leave must be called when the container has started or
// could not.
func (p *Pool) Enter(ctx context.Context, uid types.UID, container string) (
	place cri.Placement, leave func(), err error) {
	static, state := p.cfg.Hardware().CPUs, p.cfg.State()
	if static == nil {
		return cri.Placement{}, func() {}, nil
	}
	own := state.Pods[uid].Containers[container].CPUs
	if own.IsEmpty() {
		// Without a set the container would run on all CPUs, exclusive ones included.
		if err := static.CheckShared(state.CPUs()); err != nil {
			return cri.Placement{}, nil, err
		}
		c := p.creations.enter(uid, p.Shared)
		return cri.Placement{CPUs: c.cpus.String()}, func() { p.leave(c) }, nil
	}
	usable := own.Intersection(static.Online())
	if usable.IsEmpty() {
		return cri.Placement{}, nil, fmt.Errorf("the container's own CPUs %s are offline: bring "+
			"them online, or delete the pod so that it gets others", own)
	}
	if err := p.join(ctx); err != nil {
		return cri.Placement{}, nil, fmt.Errorf("free CPUs %s of other containers: %w", own, err)
	}
	return cri.Placement{
		CPUs: usable.String(), Exclusive: !p.isPadded(uid, container, own.Size()),
	}, func() {}, nil
}

// isPadded reports whether a container has more CPUs of its own than it asked for.
func (p *Pool) isPadded(uid types.UID, container string, own int) bool {
	asked, _ := p.cfg.Asked(uid, container)
	return asked > 0 && asked < own
}

func (p *Pool) leave(c *creation) {
	if p.creations.leave(c) && !p.Shared().Equals(c.cpus) {
		p.Wake() // the pool changed meanwhile
	}
}

// join returns when a round that begins after the call has ended, with its error.
func (p *Pool) join(ctx context.Context) error {
	r := p.rounds.join()
	p.Wake()
	if !await.On(ctx, r.done) {
		return ctx.Err()
	}
	return r.err
}

// enforce updates every container that has not what it should have. The error is about CPU sets.
func (p *Pool) enforce(ctx context.Context) error {
	want := newWanted(&p.cfg, p.followMachine(ctx), p.cfg.State())
	if want.pinned {
		if err := p.creations.await(ctx, want.shared, p.cfg.Observer); err != nil {
			return err
		}
	}
	u := &update{want: want, cfg: p.cfg, creations: &p.creations,
		reader: reader{cgroups: p.cfg.Cgroups, unread: p.cfg.Unread}}
	var containers []live
	containers, p.records = u.reader.containers(ctx, p.cfg.Observer.All(), want, p.records)
	u.view = compare(containers, want, time.Now())
	err, rest := u.sets(ctx), u.rest(ctx)
	if err != nil || rest != nil {
		p.on = policies{} // perhaps the groups above do not have the CPUs any more
	}
	if rest != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Updating containers is tried again", "err", rest)
	}
	u.limitPods(ctx, want.state, p.records)
	if err == nil && len(u.resting) > 0 {
		err = restingError{errors.Join(u.resting...)}
	}
	return err
}

// followMachine makes room in the groups above the containers once the machine has other CPUs or
// memory.
func (p *Pool) followMachine(ctx context.Context) machine.Hardware {
	hardware := p.cfg.Hardware()
	now := policies{hardware.CPUs, hardware.Memory}
	if p.on == now {
		return hardware
	}
	var errs []error
	if p.cfg.Cgroups != nil && now.cpus != nil {
		errs = append(errs, p.cfg.Cgroups.WidenCPUs())
	}
	if p.cfg.Cgroups != nil && now.mems != nil {
		errs = append(errs, p.cfg.Cgroups.WidenMems())
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err,
			"The cgroups of pods have not all CPUs or memory nodes; it is tried again")
		return hardware
	}
	p.on = now
	return hardware
}

// rounds brings those who wait for a round and the one who does it together.
type rounds struct {
	mu   sync.Mutex // guards next
	next *round     // nil: nobody has joined
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

// begin takes those who have joined, nil if nobody has; whoever joins now waits for the round after
// this one.
func (r *rounds) begin() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	return next
}
