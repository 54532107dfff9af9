package resources

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Cgroups finds the cgroups of pods and containers. The runtime reports what it was told, and
// notices neither foreign writes nor the kernel's own changes: on cgroup v1 a CPU that goes offline
// leaves every set for good.
type Cgroups interface {
	FindContainer(uid types.UID, id string) (cgroups.Container, error)
	FindPod(uid types.UID) (cgroups.Pod, error)
	// WidenCPUs gives all CPUs to the groups above the containers, after one came online; WidenMems
	// does the same for memory nodes.
	WidenCPUs() error
	WidenMems() error
}

// live is a container that runs or is about to, with what it has and is to have; with an empty
// Container, it is the cgroup of a pod.
type live struct {
	cri.Container
	pod    *cri.Pod
	spec   *v1.Pod // as admitted; nil: no source has named the pod yet
	at     place
	quota  cgroups.CPULimit // while CPUs are exclusive, compared with the kernel's; zero: it is not
	kernel inKernel
	record *record
	tried  bool // an earlier update had no effect
}

// inKernel holds the values in the kernel. Nil values could not be read or are not needed.
type inKernel struct {
	cpus, mems *string
	quota      *cgroups.CPULimit
}

// reader reads the kernel's values of containers and pods.
type reader struct {
	node    *Node
	cgroups Cgroups // nil: they are not known
	unread  func()
	spec    func(types.UID) (*v1.Pod, bool)
	had     func(types.UID) *podspec.Resources
}

// all reads the live containers of all pods, each pod's cgroup after them. known holds their
// records from before (nil: it is the first round), and new ones.
func (r reader) all(ctx context.Context, pods []cri.Pod, before records) (
	out []live, known records) {
	known, out = make(records, len(before)), make([]live, 0, len(before))
	for i := range pods {
		pod := &pods[i]
		own := live{pod: pod}
		own.spec, _ = r.spec(pod.UID)
		alive := false
		for _, c := range pod.Containers {
			if lives(c) {
				alive, own.Container = true, c
				out = append(out, r.look(ctx, own, before, known))
			}
		}
		if own.Container = (cri.Container{}); alive && r.cgroups != nil {
			out = append(out, r.look(ctx, own, before, known))
		}
	}
	return out, known
}

// look adds what is known of a container or pod.
func (r reader) look(ctx context.Context, c live, before, known records) live {
	s := subject{c.pod.UID, c.ID}
	c.record = before.of(s)
	known[s] = c.record
	c.record.earlier = c.record.earlier || before == nil
	begins := c.record.earlier && c.record.given == nil && c.spec != nil
	if c.record.given == nil {
		c.record.given = r.made(c)
	}
	if c = r.read(ctx, c); begins {
		r.find(c)
	}
	c.tried = c.record.unmoved.tries > 0
	if has := c.kernel.quota; has != nil && has.Same(c.quota) {
		c.record.limited = c.quota
	}
	return c
}

// find records what a container or pod has that an earlier run of the agent resized: what that run recorded of it
// may be older, or newer, than what it did.
func (r reader) find(c live) {
	if r.node.state.Pods[c.pod.UID].Resources == nil {
		return
	}
	has := c.limits(r.node, c.record.given)
	if has == (limits{}) {
		return
	}
	has.beside = "" // it is given once more
	if c.ID != "" {
		a := c.Applied
		has.shares, has.memory = cmp.Or(a.Shares, has.shares), cmp.Or(a.Memory, has.memory)
		if a.Quota != 0 {
			has.quota = cgroups.CPULimit{Quota: a.Quota, Period: a.Period}
		}
	} else if group, _ := there(r.cgroups.FindPod(c.pod.UID)); group != nil {
		if quota, err := group.CPULimit(); err == nil {
			has.quota = quota
		}
		if memory, err := group.MemoryLimit(); err == nil {
			has.memory = memory
		}
	}
	given := *c.record.given // another one than the spec: it is not known to be given
	c.record.given, c.record.found = &given, &has
}

// made returns the spec with the resources that were recorded of the container, or else of what ran of the pod,
// or for which its sandbox was made. A container or pod that is seen for the first time is taken to have these:
// if the pod was resized since, it is given its resources once more.
func (r reader) made(c live) *v1.Pod {
	if c.spec == nil {
		return nil
	}
	had := r.had(c.pod.UID)
	if had == nil {
		had = resize.Recorded(*c.pod)
	}
	if own := resize.Made(c.Container); own != nil {
		if had == nil {
			had = new(podspec.ResourcesOf(c.spec))
		}
		had = new(had.Over(podspec.Resources{Containers: map[string]v1.ResourceRequirements{c.Name: *own}}))
	}
	if had == nil {
		return c.spec
	}
	return had.In(c.spec)
}

// read computes the values that a container or pod should have, and reads the kernel's.
func (r reader) read(ctx context.Context, c live) live {
	var err error
	if c.ID == "" {
		c, err = r.readPod(c)
	} else {
		has := c.Applied
		has.CPUs = c.sent()
		c.at = r.node.place(c.pod.UID, c.Name, c.spec, &has)
		c.quota = r.node.ownQuota(c.pod.UID, c.Name, c.spec, c.at)
		if r.cgroups != nil {
			c.kernel, err = r.readContainer(c)
		}
	}
	r.note(ctx, subject{c.pod.UID, c.ID}, c.record, err)
	return c
}

func (r reader) readContainer(c live) (found inKernel, err error) {
	if c.record.group == nil {
		group, err := there(r.cgroups.FindContainer(c.pod.UID, c.ID))
		if group == nil {
			return found, err
		}
		c.record.group = group
	}
	var errs [3]error
	found.cpus, errs[0] = there(c.record.group.CPUs())
	if !c.at.mems.IsEmpty() {
		found.mems, errs[1] = there(c.record.group.Mems())
	}
	if c.quota != (cgroups.CPULimit{}) {
		found.quota, errs[2] = there(c.record.group.CPULimit())
	}
	return found, errors.Join(errs[:]...)
}

// readPod reads the CPU quota of a pod with exclusive containers.
func (r reader) readPod(c live) (live, error) {
	if c.spec == nil || !r.node.pinned(*c.pod) {
		return c, nil
	}
	if c.quota = r.node.Pod(c.spec).CPULimit(); c.quota == (cgroups.CPULimit{}) {
		return c, nil
	}
	group, err := there(r.cgroups.FindPod(c.pod.UID))
	if group != nil {
		c.kernel.quota, err = there(group.CPULimit())
	}
	return c, err
}

// there returns the value. It is nil without an error if the cgroup does not exist: it is about to
// be created, or gone.
func there[T any](value T, err error) (*T, error) {
	switch {
	case err == nil:
		return &value, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV):
		return nil, nil
	default:
		return nil, err
	}
}

// note counts a cgroup that could not be read, and logs the first failure.
func (r reader) note(ctx context.Context, s subject, known *record, err error) {
	if err != nil {
		r.unread()
		if !known.unread {
			klog.FromContext(ctx).Error(err, "A cgroup cannot be read; until it can, the agent "+
				"relies on what the runtime reports", "podUID", s.pod, "containerID", s.container)
		}
	}
	known.unread = err != nil
}
