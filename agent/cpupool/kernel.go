package cpupool

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
)

// maxRetry is the longest time between two tries to give a container a set that it does not take.
const maxRetry = 5 * time.Minute

// Cgroups is where the pool finds out what the kernel has. The runtime reports what it was told,
// and does not notice when somebody else writes, or when the kernel itself does: on cgroup v1 a CPU
// that goes offline leaves every set for good.
type Cgroups interface {
	FindContainer(uid types.UID, id string) (cgroups.Container, error)
	// WidenCPUs gives a CPU that came online to the groups above the containers.
	WidenCPUs() error
}

// unmoved is a container that did not take its set.
type unmoved struct {
	to    cpuset.CPUSet
	tries int
	retry time.Time // not before
	err   error
}

// restingError says of containers that did not take their sets what was said before.
type restingError struct{ error }

// inKernel is the set that the kernel has of a container; false: it does not have one, or not where
// it is looked for.
func (p *Pool) inKernel(uid types.UID, id string) (string, bool) {
	if p.cfg.Cgroups == nil {
		return "", false
	}
	group, known := p.group(id)
	if !known {
		var err error
		if group, err = p.cfg.Cgroups.FindContainer(uid, id); err != nil {
			return "", false
		}
		p.found(id, group)
	}
	cpus, err := group.CPUs()
	return cpus, err == nil
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

// verify looks whether the kernel has what the runtime says that it has set.
func (p *Pool) verify(uid types.UID, id string, to, online cpuset.CPUSet) error {
	has, ok := p.inKernel(uid, id)
	if !ok || matches(has, to, online) {
		p.moved(id)
		return nil
	}
	return p.resisted(id, to, fmt.Errorf("update container %s to CPUs %s: the runtime has done it and "+
		"the cgroup has %q; look for another program that writes cpuset.cpus", id, to, has))
}

func (p *Pool) moved(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unmoved, id)
}

func (p *Pool) resisted(id string, to cpuset.CPUSet, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.unmoved[id]
	if !u.to.Equals(to) {
		u.tries = 0
	}
	wait := min(time.Second<<min(u.tries, 10), maxRetry)
	p.unmoved[id] = unmoved{to, u.tries + 1, time.Now().Add(wait), err}
	return err
}

// restingLocked is why a container is not given the set again yet.
func (p *Pool) restingLocked(id string, to cpuset.CPUSet) error {
	if u, ok := p.unmoved[id]; ok && u.to.Equals(to) && time.Now().Before(u.retry) {
		return u.err
	}
	return nil
}

// followMachine makes room in the groups above the containers once the machine has other CPUs. It
// is for Run's goroutine.
func (p *Pool) followMachine(ctx context.Context) *cpumanager.Static {
	static := p.cfg.Static()
	if p.on == static {
		return static
	}
	if p.cfg.Cgroups != nil {
		if err := p.cfg.Cgroups.WidenCPUs(); err != nil {
			klog.FromContext(ctx).Error(err, "The cgroups of pods have not all CPUs; it is tried again")
			return static
		}
	}
	p.on = static
	return static
}
