// Package cpupool keeps the CPU sets of containers equal to what is assigned.
//
// A container gets its set when it is created. The shared pool shrinks when CPUs are assigned to a
// container alone, and every container in the pool has to leave them before that container
// starts:
//
//	commit of the assignment
//	  -> Enter(exclusive container): containers being created with an older pool are waited for,
//	     then every container whose set differs from what is wanted is updated
//	  -> CreateContainer, StartContainer
//
// What is wanted is computed from the committed assignments, what is from the runtime's own
// report; nothing is remembered in between, so that in steady state there is nothing to do.
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
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
)

// parallelUpdates bounds how many containers are updated at once.
const parallelUpdates = 8

// Runtime is what the pool asks of the container runtime.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string,
		resources *runtimeapi.ContainerResources) error
}

// Observer knows what runs.
type Observer interface {
	All() []cri.Pod
	Reread(ctx context.Context, uid types.UID) (cri.Pod, error)
}

// Config is what a Pool works with.
type Config struct {
	Static   *cpumanager.Static
	State    func() allocation.State
	Runtime  Runtime
	Observer Observer
	// Period is cpuManagerReconcilePeriod.
	Period time.Duration
}

// Pool gives containers their CPU sets and keeps them.
type Pool struct {
	cfg  Config
	turn chan struct{} // capacity 1: one round of updates at a time
	wake chan struct{} // capacity 1

	mu       sync.Mutex // guards the fields below
	creating map[*creation]bool
	unread   map[types.UID]bool       // pods with a container newer than the observer's view
	told     map[string]cpuset.CPUSet // by container id, for runtimes that do not report sets
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
		turn:     make(chan struct{}, 1),
		wake:     make(chan struct{}, 1),
		creating: map[*creation]bool{},
		unread:   map[types.UID]bool{},
		told:     map[string]cpuset.CPUSet{},
	}
}

// Run enforces each period and after each Wake, until ctx ends.
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
		if err := p.enforce(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Updating the CPU sets of containers is tried again",
				"after", p.cfg.Period, "err", err)
		}
	}
}

// Wake has Run enforce soon; assignments changed.
func (p *Pool) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Shared is where containers without CPUs of their own run now.
func (p *Pool) Shared() cpuset.CPUSet { return p.cfg.Static.Shared(p.cfg.State().CPUs()) }

// Enter says where a container that is about to be created may run, and whether the CPUs are its
// own. For a container with CPUs of its own it returns when no other container is on them. leave
// must be called when the container has started or could not.
func (p *Pool) Enter(ctx context.Context, uid types.UID, container string) (
	place cri.Placement, leave func(), err error) {
	own := p.cfg.State().Pods[uid].Containers[container].CPUs
	if own.IsEmpty() {
		cpus, leave := p.enterShared(uid)
		return cri.Placement{CPUs: cpus.String()}, leave, nil
	}
	if err := p.enforce(ctx); err != nil {
		return cri.Placement{}, nil, fmt.Errorf("free CPUs %s of other containers: %w", own, err)
	}
	return cri.Placement{CPUs: own.String(), Exclusive: true}, func() {}, nil
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
	p.unread[c.uid] = true
	close(c.done)
	if !p.Shared().Equals(c.cpus) {
		p.Wake() // the pool changed meanwhile
	}
}

// enforce updates every container whose set is not what it should be.
func (p *Pool) enforce(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	state := p.cfg.State()
	shared := p.cfg.Static.Shared(state.CPUs())
	if err := p.awaitCreations(ctx, shared); err != nil {
		return err
	}
	want, observed := p.compare(state, shared)
	updates := cpumanager.Plan(want, observed)
	for _, group := range shrinkingFirst(updates) {
		if err := p.update(ctx, group); err != nil {
			return err
		}
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
	for _, uid := range p.takeUnread() {
		if _, err := p.cfg.Observer.Reread(ctx, uid); err != nil {
			p.markUnread(uid)
			return err
		}
	}
	return nil
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

func (p *Pool) takeUnread() (out []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.unread {
		out = append(out, uid)
	}
	clear(p.unread)
	return out
}

func (p *Pool) markUnread(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unread[uid] = true
}

// compare says for each live container of a known pod which set it should have and which it has.
func (p *Pool) compare(state allocation.State, shared cpuset.CPUSet) (
	want map[string]cpuset.CPUSet, observed map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, observed = map[string]cpuset.CPUSet{}, map[string]string{}
	for _, pod := range p.cfg.Observer.All() {
		for _, c := range pod.Containers {
			if c.State != cri.ContainerRunning && c.State != cri.ContainerCreated {
				continue
			}
			want[c.ID], observed[c.ID] = shared, c.CPUSet
			if own := state.Pods[pod.UID].Containers[c.Name].CPUs; !own.IsEmpty() {
				want[c.ID] = own
			}
			if told, ok := p.told[c.ID]; ok && c.CPUSet == "" {
				observed[c.ID] = told.String()
			}
		}
	}
	for id := range p.told {
		if _, alive := want[id]; !alive {
			delete(p.told, id)
		}
	}
	return want, observed
}

// shrinkingFirst splits the updates so that nothing grows before everything that shrinks did.
func shrinkingFirst(updates []cpumanager.Update) [][]cpumanager.Update {
	var shrink, grow []cpumanager.Update
	for _, u := range updates {
		if u.To.IsSubsetOf(u.From) || u.From.IsEmpty() {
			shrink = append(shrink, u)
		} else {
			grow = append(grow, u)
		}
	}
	return [][]cpumanager.Update{shrink, grow}
}

// update applies updates side by side. A container that is gone needs none.
func (p *Pool) update(ctx context.Context, updates []cpumanager.Update) error {
	var group errgroup.Group
	group.SetLimit(parallelUpdates)
	errs := make([]error, len(updates))
	for i, u := range updates {
		group.Go(func() error {
			errs[i] = p.updateOne(ctx, u)
			return nil
		})
	}
	_ = group.Wait() // each error is in errs: one container's must not hide another's
	return errors.Join(errs...)
}

func (p *Pool) updateOne(ctx context.Context, u cpumanager.Update) error {
	err := p.cfg.Runtime.UpdateContainerResources(ctx, u.ContainerID, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: u.To.String()},
	})
	uid, known := p.podOf(u.ContainerID)
	if known {
		p.markUnread(uid)
	}
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		if known { // it may have ended meanwhile, which is no error
			if pod, rereadErr := p.cfg.Observer.Reread(ctx, uid); rereadErr == nil &&
				!alive(pod, u.ContainerID) {
				return nil
			}
		}
		return fmt.Errorf("update container %s to CPUs %s: %w", u.ContainerID, u.To, err)
	}
	klog.FromContext(ctx).V(2).Info("Updated the CPU set of a container",
		"containerID", u.ContainerID, "from", u.From, "to", u.To, "reason", u.Reason)
	p.remember(u)
	return nil
}

func (p *Pool) remember(u cpumanager.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[u.ContainerID] = u.To
}

func (p *Pool) podOf(containerID string) (types.UID, bool) {
	for _, pod := range p.cfg.Observer.All() {
		for _, c := range pod.Containers {
			if c.ID == containerID {
				return pod.UID, true
			}
		}
	}
	return "", false
}

func alive(pod cri.Pod, containerID string) bool {
	for _, c := range pod.Containers {
		if c.ID == containerID {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerCreated
		}
	}
	return false
}
