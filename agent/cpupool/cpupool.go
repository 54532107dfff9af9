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
// All changes go through the runtime, which would undo others. One that has no effect is tried
// again after a while that grows.
package cpupool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
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
	// Static is the policy on the machine as it is now; nil: policy none. Then containers get no set, and
	// those that were given one under another policy get all that is Online. After a change, Wake.
	Static   func() *cpumanager.Static
	Online   func() cpuset.CPUSet
	State    func() allocation.State
	Runtime  Runtime
	Observer Observer
	Cgroups  Cgroups // nil: what the runtime reports is believed
	// Quota is what limits a container to that many CPUs while they are not its own; nil: nothing is.
	Quota func(cpus int) Quota
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
	// Repaired is told of each container whose set somebody else had changed, from several
	// goroutines; nil: nobody is.
	Repaired func()
}

// Pool gives containers their CPU sets and keeps them.
type Pool struct {
	cfg  Config
	wake chan struct{}      // capacity 1
	on   *cpumanager.Static // the groups above have room for its machine; Run's own

	mu       sync.Mutex // guards the fields below
	next     *round     // nil: nobody has joined
	creating map[*creation]bool
	stale    map[types.UID]time.Time // observations of the pod from before then do not count
	// By container id:
	told    map[string]told
	groups  map[string]cgroups.Container
	unmoved map[string]unmoved
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
// container is on them, which needs Run. leave must be called when the container has started or could not.
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
		return cri.Placement{}, nil, fmt.Errorf("the container's own CPUs %s are offline: bring them "+
			"online, or delete the pod so that it gets others", own)
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

// enforce updates every container whose set is not what it should be.
func (p *Pool) enforce(ctx context.Context) error {
	static, state := p.followMachine(ctx), p.cfg.State()
	want := p.open(state)
	if static != nil {
		want = pinned(state, static)
		if err := p.awaitCreations(ctx, static.Shared(state.CPUs())); err != nil {
			return err
		}
	}
	view := p.compare(want)
	for _, group := range shrinkingFirst(cpumanager.Plan(view.want, view.observed)) {
		if err := p.update(ctx, group, view); err != nil {
			p.on = nil // perhaps the groups above do not have the CPUs any more
			return err
		}
	}
	if len(view.resting) > 0 {
		return restingError{errors.Join(view.resting...)}
	}
	return nil
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

// update applies updates side by side. A container that is gone needs none.
func (p *Pool) update(ctx context.Context, updates []cpumanager.Update, v view) error {
	return parallel(len(updates), func(i int) error { return p.updateOne(ctx, updates[i], v) })
}

// parallel calls f for 0 to n-1, some at a time, and returns each error: one container's must not
// hide another's.
func parallel(n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(parallelCalls)
	errs := make([]error, n)
	for i := range n {
		group.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	return errors.Join(errs...)
}

func (p *Pool) updateOne(ctx context.Context, u cpumanager.Update, v view) error {
	owner := v.owner[u.ContainerID]
	quota := v.quota[u.ContainerID]
	err := p.cfg.Runtime.UpdateContainerResources(ctx, u.ContainerID, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{
			CpusetCpus: u.To.String(), CpuQuota: quota.Quota, CpuPeriod: quota.Period,
		},
	})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		p.doubt(u.ContainerID, owner)
		// It may have ended meanwhile, which is no error.
		pod, rereadErr := p.cfg.Observer.Reread(ctx, owner)
		if rereadErr == nil && !alive(pod, u.ContainerID) {
			return nil
		}
		return fmt.Errorf("update container %s to CPUs %s: %w", u.ContainerID, u.To, err)
	}
	p.remember(u)
	if err := p.verify(owner, u.ContainerID, u.To, v.online); err != nil {
		return err
	}
	log := klog.FromContext(ctx)
	if v.repair[u.ContainerID] {
		log.Info("Repaired the CPU set of a container, which the runtime had not changed",
			"podUID", owner, "containerID", u.ContainerID, "from", u.From, "to", u.To)
		if p.cfg.Repaired != nil {
			p.cfg.Repaired()
		}
		return nil
	}
	log.V(2).Info("Updated the CPU set of a container",
		"containerID", u.ContainerID, "from", u.From, "to", u.To, "reason", u.Reason)
	return nil
}

func (p *Pool) remember(u cpumanager.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[u.ContainerID] = told{u.To, time.Now()}
}

// doubt says that an update may have had an effect or not.
func (p *Pool) doubt(containerID string, owner types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.told, containerID)
	p.stale[owner] = time.Now()
}
