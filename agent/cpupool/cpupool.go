// Package cpupool keeps the CPU sets of containers equal to their assignments.
//
// A container gets its set when it is created. The shared pool shrinks when CPUs are assigned to an
// exclusive container, and every container in the pool must leave them before that container
// starts:
//
//	commit of the assignment
//	  -> Enter(exclusive container) joins the next round of updates:
//	       containers being created with an older pool are waited for,
//	       then every container whose set differs from what is wanted is updated
//	  -> CreateContainer, StartContainer
//
// Run does one round after the other. A round serves all callers that joined before it began, so
// that many exclusive containers at a time cost few rounds.
//
// The wanted sets follow from the committed assignments and the online CPUs. The actual sets come
// from the kernel: each round reads one small file in each container's cgroup. If that is not
// possible, the runtime's report and later updates count. In steady state nothing is updated.
//
// A round also compares the memory nodes that a container was created with, and the CPU quota of
// exclusive containers and their pods, which have no quota while their CPUs are exclusive. Nobody
// waits for these.
//
// The types follow a round: wanted holds what containers should have, reader reads what they have,
// compare finds the difference, update removes it. records keeps what is needed in later rounds.
//
// All changes of containers go through the runtime, which would undo other changes. A change
// without effect is repeated after a growing delay.
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
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/memory"
)

// Runtime is the container runtime.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string,
		resources *runtimeapi.ContainerResources) error
}

// Observer knows the pods in the runtime.
type Observer interface {
	All() []cri.Pod
	Get(uid types.UID) (cri.Pod, bool)
	Reread(ctx context.Context, uid types.UID) (cri.Pod, error)
}

// Config holds what a Pool depends on.
type Config struct {
	// Hardware returns the present machine and its policies. Without a CPU policy containers get no
	// set, and those that have one from an earlier policy get all online CPUs.
	Hardware func() machine.Hardware
	State    func() allocation.State
	Runtime  Runtime
	Observer Observer
	Cgroups  Cgroups // nil: the runtime's report counts
	// Limit returns the CPU quota of a container with that many CPUs while they are not exclusive;
	// nil: none has one.
	Limit func(cpus int) cgroups.CPULimit
	// Asked returns how many exclusive CPUs a container asked for, 0 if none beyond those it holds. If
	// it is not known, its quota stays.
	Asked func(uid types.UID, container string) (cpus int, known bool)
	// PodLimit returns the CPU quota of a pod's cgroup; if zero, it stays. It is called for pods with
	// exclusive containers.
	PodLimit func(uid types.UID) cgroups.CPULimit
	// Changed receives an element when State or Hardware changes; nil: never.
	Changed <-chan struct{}
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
	// Repaired is called when a foreign change of a cgroup was undone, Unread for each cgroup that
	// exists and could not be read. Both are called from several goroutines.
	Repaired func(Repair)
	Unread   func()
}

// Repair is the kind of a repaired setting of a cgroup.
type Repair string

// The repairs, in words for the log.
const (
	CPUSet      Repair = "CPU set"
	MemoryNodes Repair = "memory nodes"
	CPUQuota    Repair = "CPU quota"
)

// Pool sets and maintains the CPU sets of containers.
type Pool struct {
	cfg       Config
	wake      chan struct{} // capacity 1
	rounds    rounds
	creations creations

	// Run owns the fields below.
	records records
	on      policies // the machine that the groups above were last widened for
}

// policies identifies a machine by its policies.
type policies struct {
	cpus *cpumanager.Static
	mems *memory.Static
}

// New returns a pool, which Run maintains.
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
			klog.FromContext(ctx).Info("Updating the CPU sets of containers failed and is tried again",
				"after", p.cfg.Period, "err", err)
		}
	}
}

// Wake makes Run do a round soon.
func (p *Pool) Wake() { await.Wake(p.wake) }

// Shared returns the CPUs of containers without exclusive CPUs.
func (p *Pool) Shared() cpuset.CPUSet { return shared(p.cfg.Hardware(), p.cfg.State()) }

// Enter returns where a container that is about to be created may run: its online exclusive CPUs,
// or the shared pool. For an exclusive container it returns only when no other container is on
// these CPUs, which needs Run. The caller must call leave when the container has started or failed
// to.
func (p *Pool) Enter(ctx context.Context, uid types.UID, container string) (
	place cri.Placement, leave func(), err error) {
	static, state := p.cfg.Hardware().CPUs, p.cfg.State()
	if static == nil {
		return cri.Placement{}, func() {}, nil
	}
	own := state.Pods[uid].Containers[container].CPUs()
	if own.IsEmpty() {
		// Without a set the container would run on all CPUs, including exclusive ones.
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

// isPadded reports whether a container has more exclusive CPUs than it asked for.
func (p *Pool) isPadded(uid types.UID, container string, own int) bool {
	asked, _ := p.cfg.Asked(uid, container)
	return asked > 0 && asked < own
}

func (p *Pool) leave(c *creation) {
	if p.creations.leave(c) && !p.Shared().Equals(c.cpus) {
		p.Wake() // the pool changed meanwhile
	}
}

// join waits for a round that begins after the call, and returns its error.
func (p *Pool) join(ctx context.Context) error {
	r := p.rounds.join()
	p.Wake()
	if !await.On(ctx, r.done) {
		return ctx.Err()
	}
	return r.err
}

// enforce updates every container that differs from what it should have. The error is about CPU
// sets.
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
		p.on = policies{} // perhaps the groups above no longer have the CPUs
	}
	if rest != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Updating containers failed and is tried again", "err", rest)
	}
	u.limitPods(ctx, want.state, p.records)
	if err == nil && len(u.resting) > 0 {
		err = restingError{errors.Join(u.resting...)}
	}
	return err
}

// followMachine widens the groups above the containers when the machine has other CPUs or memory.
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

// rounds connects callers that wait for a round with Run.
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

// begin takes the round that callers have joined, nil if none has. Later callers join the next one.
func (r *rounds) begin() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	return next
}
