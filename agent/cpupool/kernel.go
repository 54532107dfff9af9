package cpupool

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
)

// Cgroups reads the kernel's values. The runtime reports what it was told, and notices neither
// foreign writes nor the kernel's own changes: on cgroup v1 a CPU that goes offline leaves every
// set for good.
type Cgroups interface {
	FindContainer(uid types.UID, id string) (cgroups.Container, error)
	FindPod(uid types.UID) (cgroups.Pod, error)
	// WidenCPUs gives all CPUs to the groups above the containers, after one came online; WidenMems
	// does the same for memory nodes.
	WidenCPUs() error
	WidenMems() error
}

// live is a container that has a CPU set, or will have one before it runs.
type live struct {
	cri.Container
	pod    cri.Pod
	kernel inKernel
	record *record
	tried  bool // an earlier update had no effect
}

// inKernel holds a container's values in the kernel. Nil values could not be read or are not
// needed.
type inKernel struct {
	cpus, mems *string
	quota      *cgroups.CPULimit
}

// reader reads the kernel's values of containers and pods.
type reader struct {
	cgroups Cgroups // nil: they are not known
	unread  func()
}

// containers reads the live containers of all pods. known holds their records from before, and new
// ones.
func (r reader) containers(ctx context.Context, pods []cri.Pod, w wanted, before records) (
	out []live, known records) {
	known = make(records, len(before))
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if c.State != cri.ContainerRunning && c.State != cri.ContainerCreated {
				continue
			}
			s := subject{pod.UID, c.ID}
			l := live{Container: c, pod: pod, record: before.of(s)}
			l.kernel, l.tried = r.look(ctx, l, w), l.record.unmoved.tries > 0
			if has := l.kernel.quota; has != nil && has.Same(w.quota(l)) {
				l.record.limited = w.quota(l)
			}
			known[s], known[subject{pod: pod.UID}] = l.record, before.of(subject{pod: pod.UID})
			out = append(out, l)
		}
	}
	return out, known
}

// look reads the values of a container that wanted concerns.
func (r reader) look(ctx context.Context, c live, w wanted) inKernel {
	if r.cgroups == nil {
		return inKernel{}
	}
	found, err := r.read(c, w)
	r.note(ctx, subject{c.pod.UID, c.ID}, c.record, err)
	return found
}

func (r reader) read(c live, w wanted) (found inKernel, err error) {
	if c.record.group == nil {
		group, err := there(r.cgroups.FindContainer(c.pod.UID, c.ID))
		if group == nil {
			return found, err
		}
		c.record.group = group
	}
	var errs [3]error
	found.cpus, errs[0] = there(c.record.group.CPUs())
	if !w.mems(c).IsEmpty() {
		found.mems, errs[1] = there(c.record.group.Mems())
	}
	if w.quota(c) != (cgroups.CPULimit{}) {
		found.quota, errs[2] = there(c.record.group.CPULimit())
	}
	return found, errors.Join(errs[:]...)
}

// podQuota reads the CPU quota of a pod's cgroup; nil: not known.
func (r reader) podQuota(ctx context.Context, uid types.UID, known *record) (
	*cgroups.Pod, *cgroups.CPULimit) {
	var has *cgroups.CPULimit
	group, err := there(r.cgroups.FindPod(uid))
	if group != nil {
		has, err = there(group.CPULimit())
	}
	r.note(ctx, subject{pod: uid}, known, err)
	return group, has
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
