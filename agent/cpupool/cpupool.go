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
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// parallelCalls bounds how many calls of the runtime a round has under way at once.
const parallelCalls = 8

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
	// Static is the policy on the machine as it is now; nil: policy none. Then containers get no
	// set, and those that were given one under another policy get all that is online. After a
	// change, Wake.
	Static func() *cpumanager.Static
	// Memory is the memory manager's policy on the machine; nil, or none returned: policy None.
	Memory   func() *memory.Static
	Machine  func() *topology.Machine
	State    func() allocation.State
	Runtime  Runtime
	Observer Observer
	Cgroups  Cgroups // nil: what the runtime reports is believed
	// Limit is what limits a container to that many CPUs while they are not its own; nil: nothing
	// does.
	Limit func(cpus int) cgroups.CPULimit
	// PodLimit is the CPU quota that the cgroup of a pod should have, zero: it is left alone; nil:
	// all are. It is asked about pods in which a container has CPUs of its own.
	PodLimit func(uid types.UID) cgroups.CPULimit
	// Changed has a value when the assignments or the machine are others.
	Changed <-chan struct{}
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
	// Repaired is told of what somebody else had changed in a cgroup, from several goroutines; nil:
	// nobody is.
	Repaired func(Repair)
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
	cfg  Config
	wake chan struct{} // capacity 1
	on   policies      // the groups above have room for their machine; Run's own

	mu       sync.Mutex // guards the fields below
	next     *round     // nil: nobody has joined
	creating map[*creation]bool
	stale    map[types.UID]time.Time // observations of the pod from before then do not count
	// By container id, or by the UID of a pod:
	told    map[string]told
	groups  map[string]cgroups.Container
	unmoved map[string]unmoved
	limited map[string]cgroups.CPULimit // was found as it should be
}

// round is one round of updates.
type round struct {
	done chan struct{}
	err  error // valid once done is closed
}

// told is what the runtime was told last, for as long as it is newer than what it has reported.
type told struct {
	cpus cpuset.CPUSet
	at   time.Time
}

// creation is a container of the shared pool that is being created.
type creation struct {
	uid  types.UID
	cpus cpuset.CPUSet
	done chan struct{}
}

// New returns a pool; Run keeps it.
func New(cfg Config) *Pool {
	return &Pool{
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		creating: map[*creation]bool{},
		stale:    map[types.UID]time.Time{},
		told:     map[string]told{},
		groups:   map[string]cgroups.Container{},
		unmoved:  map[string]unmoved{},
		limited:  map[string]cgroups.CPULimit{},
	}
}

// Run does a round each period and after each Wake, until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	ticker := time.NewTicker(p.cfg.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-p.wake:
		case <-p.cfg.Changed:
		}
		joined := p.begin()
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

// begin takes those who have joined; whoever joins now waits for the round after this one.
func (p *Pool) begin() *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.next
	p.next = nil
	return r
}

// join returns when a round that begins after the call has ended, with its error.
func (p *Pool) join(ctx context.Context) error {
	r := p.joinNext()
	p.Wake()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Pool) joinNext() *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &round{done: make(chan struct{})}
	}
	return p.next
}

// Wake has Run do a round soon; assignments changed.
func (p *Pool) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Enter says where a container that is about to be created may run, and whether the CPUs are its
// own: those of them that are online. For a container with CPUs of its own it returns when no other
// container is on them, which needs Run. leave must be called when the container has started or
// could not.
func (p *Pool) Enter(ctx context.Context, uid types.UID, container string) (
	place cri.Placement, leave func(), err error) {
	if p.cfg.Static() == nil {
		return cri.Placement{}, func() {}, nil
	}
	own := p.cfg.State().Pods[uid].Containers[container].CPUs
	if own.IsEmpty() {
		// Without a set the container would run on all CPUs, exclusive ones included.
		if err := p.cfg.Static().CheckShared(p.cfg.State().CPUs()); err != nil {
			return cri.Placement{}, nil, err
		}
		cpus, leave := p.enterShared(uid)
		return cri.Placement{CPUs: cpus.String()}, leave, nil
	}
	usable := own.Intersection(p.cfg.Static().Online())
	if usable.IsEmpty() {
		return cri.Placement{}, nil, fmt.Errorf("the container's own CPUs %s are offline: bring "+
			"them online, or delete the pod so that it gets others", own)
	}
	if err := p.join(ctx); err != nil {
		return cri.Placement{}, nil, fmt.Errorf("free CPUs %s of other containers: %w", own, err)
	}
	return cri.Placement{CPUs: usable.String(), Exclusive: true}, func() {}, nil
}

func (p *Pool) enterShared(uid types.UID) (cpuset.CPUSet, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &creation{uid: uid, cpus: p.Shared(), done: make(chan struct{})}
	p.creating[c] = true
	return c.cpus, func() { p.left(c) }
}

func (p *Pool) left(c *creation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.creating[c] {
		return
	}
	delete(p.creating, c)
	p.stale[c.uid] = time.Now()
	close(c.done)
	if !p.Shared().Equals(c.cpus) {
		p.Wake() // the pool changed meanwhile
	}
}

// enforce updates every container that has not what it should have. The error is about CPU sets.
func (p *Pool) enforce(ctx context.Context) error {
	static, state := p.followMachine(ctx), p.cfg.State()
	want := p.wanted(state, static)
	if static != nil {
		if err := p.awaitCreations(ctx, static.Shared(state.CPUs())); err != nil {
			return err
		}
	}
	v := p.compare(want)
	err := p.updateSets(ctx, v)
	p.updateRest(ctx, v)
	p.limitPods(ctx, state)
	if err == nil && len(v.resting) > 0 {
		err = restingError{errors.Join(v.resting...)}
	}
	return err
}

// awaitCreations waits for containers that are being created on CPUs that left the pool, and has
// the observer see those that were created since it looked.
func (p *Pool) awaitCreations(ctx context.Context, shared cpuset.CPUSet) error {
	for _, c := range p.older(shared) {
		select {
		case <-c.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	outdated := p.outdated()
	return parallel(len(outdated), func(i int) error {
		if _, err := p.cfg.Observer.Reread(ctx, outdated[i].uid); err != nil {
			return err
		}
		p.observed(outdated[i])
		return nil
	})
}

func (p *Pool) older(shared cpuset.CPUSet) (out []*creation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.creating {
		if !c.cpus.IsSubsetOf(shared) {
			out = append(out, c)
		}
	}
	return out
}

// stalePod is a pod of which observations from before at do not count.
type stalePod struct {
	uid types.UID
	at  time.Time
}

// outdated are the pods that have to be observed anew.
func (p *Pool) outdated() (out []stalePod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, at := range p.stale {
		if pod, ok := p.cfg.Observer.Get(uid); ok && pod.ReadAt.After(at) {
			delete(p.stale, uid)
		} else {
			out = append(out, stalePod{uid, at})
		}
	}
	return out
}

// observed says that the pod was, unless it became stale again meanwhile.
func (p *Pool) observed(s stalePod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stale[s.uid].Equal(s.at) {
		delete(p.stale, s.uid)
	}
}
