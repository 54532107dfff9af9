package cpupool

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
)

// maxRetry is the longest time between two tries to give a container a set that it does not take.
const maxRetry = 5 * time.Minute

// Cgroups is where the pool finds out what the kernel has. The runtime reports what it was told,
// and does not notice when somebody else writes, or when the kernel itself does: on cgroup v1 a CPU
// that goes offline leaves every set for good.
type Cgroups interface {
	FindContainer(uid types.UID, id string) (cgroups.Container, error)
	FindPod(uid types.UID) (cgroups.Pod, error)
	// WidenCPUs gives a CPU that came online to the groups above the containers, and WidenMems the
	// memory of a node.
	WidenCPUs() error
	WidenMems() error
}

// policies are those that have containers' sets follow the machine, on one machine.
type policies struct {
	cpus *cpumanager.Static
	mems *memory.Static
}

// unmoved is a container that did not take what it should have, or a pod.
type unmoved struct {
	to    string
	tries int
	retry time.Time // not before
	err   error
}

// restingError says of containers that did not take their sets what was said before.
type restingError struct{ error }

// interest is what else is to be read than the CPU set.
type interest struct{ mems, quota bool }

// look reads what the kernel has of a container.
func (p *Pool) look(uid types.UID, id string, in interest) (found inKernel) {
	if p.cfg.Cgroups == nil {
		return found
	}
	group, known := p.group(id)
	if !known {
		var err error
		if group, err = p.cfg.Cgroups.FindContainer(uid, id); err != nil {
			return found
		}
		p.found(id, group)
	}
	if cpus, err := group.CPUs(); err == nil {
		found.cpus = &cpus
	}
	if in.mems {
		if mems, err := group.Mems(); err == nil {
			found.mems = &mems
		}
	}
	if in.quota {
		if quota, err := group.CPULimit(); err == nil {
			found.quota = &quota
		}
	}
	return found
}

func (p *Pool) group(id string) (cgroups.Container, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	group, known := p.groups[id]
	return group, known
}

func (p *Pool) found(id string, group cgroups.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[id] = group
}

// verify looks whether the kernel has what the runtime says that it has set. The error is about the
// CPU set, where one was set: others wait for that.
func (p *Pool) verify(ctx context.Context, id string, v view) error {
	l := v.lacks[id]
	left := l.left(p.look(l.owner, id, interest{
		mems: !l.mems.IsEmpty(), quota: l.quota != cgroups.CPULimit{},
	}), v)
	if left.isEmpty() {
		p.moved(id)
		return nil
	}
	err := p.resisted(id, left.String(), left.resistance(id))
	if !l.cpus.IsEmpty() && left.cpus.IsEmpty() {
		klog.FromContext(ctx).Info("A container has its CPUs and not all else", "err", err)
		return nil
	}
	return err
}

func (p *Pool) moved(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unmoved, id)
}

// resisted has the container, or the pod, rest for a while before it is given that again.
func (p *Pool) resisted(id, to string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.unmoved[id]
	if u.to != to {
		u.tries = 0
	}
	wait := min(time.Second<<min(u.tries, 10), maxRetry)
	p.unmoved[id] = unmoved{to, u.tries + 1, time.Now().Add(wait), err}
	return err
}

// restingLocked is why it is not given that again yet.
func (p *Pool) restingLocked(id, to string) error {
	if u, ok := p.unmoved[id]; ok && u.to == to && time.Now().Before(u.retry) {
		return u.err
	}
	return nil
}

// followMachine makes room in the groups above the containers once the machine has other CPUs or
// memory. It is for Run's goroutine.
func (p *Pool) followMachine(ctx context.Context) *cpumanager.Static {
	now := policies{cpus: p.cfg.Static()}
	if p.cfg.Memory != nil {
		now.mems = p.cfg.Memory()
	}
	if p.on == now {
		return now.cpus
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
		return now.cpus
	}
	p.on = now
	return now.cpus
}
