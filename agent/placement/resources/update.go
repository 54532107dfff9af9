package resources

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// parallelCalls bounds the concurrent calls to the runtime.
const parallelCalls = 8

// update is the changes of one round.
type update struct {
	node      *Node
	cfg       Config
	reader    reader
	creations *creations

	mu     sync.Mutex // guards the fields below
	failed failed
	errs   struct{ cpus, rest []error }
}

// failed names what steps that failed hold up.
type failed struct {
	cpus bool               // no CPU set grows
	pods map[types.UID]bool // no limit of the pod or of its containers changes
	ids  map[string]bool    // the container gets nothing more
}

func (f *failed) by(step lack) {
	f.cpus = f.cpus || step.lacks(CPUSet)
	if step.ID == "" || step.ordered() {
		f.pods[step.pod.UID] = true
	}
	f.ids[step.ID] = step.ID != ""
}

func (f *failed) hold(step lack) bool {
	return f.cpus && step.lacks(CPUSet) || f.ids[step.ID] ||
		f.pods[step.pod.UID] && (step.ID == "" || step.ordered())
}

// ordered reports whether the step changes a limit that has a phase.
func (l lack) ordered() bool {
	return slices.ContainsFunc(l.gaps, func(g gap) bool {
		return g.what != CPUSet && g.phase != anyTime
	})
}

// all gives containers and pods what they lack. A step that failed holds up those that depend on
// it.
func (u *update) all(ctx context.Context, lacks []lack) {
	for _, place := range steps(lacks) {
		due := slices.DeleteFunc(place, u.failed.hold)
		_ = await.Each(due, parallelCalls, func(step lack) error { // errors are in u
			do := u.container
			if step.ID == "" {
				do = u.pod
			}
			if err := do(ctx, step); err != nil {
				u.fail(step, err)
			}
			return nil
		})
	}
}

func (u *update) fail(step lack, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed.by(step)
	if step.lacks(CPUSet) {
		u.errs.cpus = append(u.errs.cpus, err)
	} else {
		u.errs.rest = append(u.errs.rest, err)
	}
}

// pod changes the cgroup of a pod, or its volumes. The agent owns them, so the runtime is not involved.
func (u *update) pod(ctx context.Context, l lack) error {
	var err error
	if l.lacks(VolumeSize) {
		err = u.volumes(l)
	} else {
		group, missing := there(u.cfg.Cgroups.FindPod(l.pod.UID))
		if group == nil {
			return missing
		}
		err = u.group(ctx, l, group)
	}
	if err != nil {
		return l.record.resisted(l.String(), err)
	}
	if l.record.unmoved = (unmoved{}); l.whole {
		l.record.gave(l.spec)
	}
	u.tell(ctx, l)
	return nil
}

// group changes the cgroup of a pod.
func (u *update) group(ctx context.Context, l lack, group *cgroups.Pod) error {
	want := u.node.Pod(l.spec)
	err := l.checkMemory("pod", want.Memory, group.MemoryUsed)
	if err == nil {
		err = u.sandbox(ctx, l, want)
	}
	if err == nil && l.lacks(CPUQuota) {
		err = group.SetCPULimit(ctx, want.CPULimit())
	}
	if err == nil && (l.lacks(CPUShares) || l.lacks(Memory)) {
		err = group.Set(ctx, cgroups.Resources{Shares: want.Shares, Memory: want.Memory,
			Protection: want.Protection, High: want.High})
	}
	if err == nil && l.lacks(CPUQuota) && l.quota != (cgroups.CPULimit{}) {
		l.record.limited = l.quota
	}
	return err
}

// sandbox tells the runtime of the pod's resources before its cgroup is changed. A runtime may refuse, and one
// that knows no such call has nothing against it.
func (u *update) sandbox(ctx context.Context, l lack, want cgroups.Resources) error {
	quota := want.CPULimit()
	for _, s := range l.pod.Sandboxes {
		if !s.Ready {
			continue
		}
		_, err := u.cfg.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: s.ID, Overhead: &runtimeapi.LinuxContainerResources{},
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares: int64(want.Shares), CpuQuota: quota.Quota, CpuPeriod: quota.Period,
				MemoryLimitInBytes: want.Memory,
			},
		})
		if err != nil && status.Code(err) != codes.Unimplemented && status.Code(err) != codes.NotFound {
			return fmt.Errorf("tell the runtime of the resources of sandbox %s: %w", s.ID, err)
		}
	}
	return nil
}

// inUseError says that a memory limit is not lowered to less than is used: the kernel would kill processes. The
// words are the kubelet's.
type inUseError struct {
	whose       string
	limit, used int64 // bytes
}

func (e *inUseError) Error() string {
	return fmt.Sprintf("cannot decrease memory limits: attempting to set %s memory limit (%d) below current usage (%d)",
		e.whose, e.limit, e.used)
}

// checkMemory refuses to lower a memory limit to less than is used.
func (l lack) checkMemory(whose string, limit int64, used func() (int64, error)) error {
	if !slices.ContainsFunc(l.gaps, gap.lowersMemory) {
		return nil
	}
	now, err := used()
	if err == nil && now >= limit {
		err = &inUseError{whose, limit, now}
	}
	return err
}

func (g gap) lowersMemory() bool { return g.what == Memory && g.phase == first }

// resources returns what the runtime is told to change. The CPU quota of a container with exclusive
// CPUs goes with its CPU set.
func (u *update) resources(l lack) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{}
	var all *runtimeapi.LinuxContainerResources
	if l.spec != nil {
		if c, _ := podspec.Find(l.spec, l.Name); c != nil {
			all = u.node.container(l.spec, c, l.at)
		}
	}
	for _, g := range l.gaps {
		switch g.what {
		case CPUSet:
			r.CpusetCpus = l.at.cpus.text
			r.CpuQuota, r.CpuPeriod = l.quota.Quota, l.quota.Period
		case MemoryNodes:
			r.CpusetMems = l.at.mems.String()
		case CPUQuota:
			if r.CpuQuota, r.CpuPeriod = l.quota.Quota, l.quota.Period; r.CpuQuota == 0 {
				r.CpuQuota, r.CpuPeriod = all.CpuQuota, all.CpuPeriod
			}
		case CPUShares:
			r.CpuShares = all.CpuShares
		case Memory:
			r.MemoryLimitInBytes = all.MemoryLimitInBytes
			r.MemorySwapLimitInBytes, r.Unified = all.MemorySwapLimitInBytes, all.Unified
			r.OomScoreAdj = all.OomScoreAdj
		}
	}
	return r
}

// container has the runtime change a container. A container that is gone needs no change.
func (u *update) container(ctx context.Context, l lack) error {
	to := u.resources(l)
	if group := l.record.group; group != nil {
		err := l.checkMemory(fmt.Sprintf("container %q", l.Name), to.MemoryLimitInBytes, group.MemoryUsed)
		switch {
		case err == nil:
		case !l.lacks(CPUSet):
			return l.record.resisted(l.String(), err)
		default: // others wait for the CPUs, and the rest for the next round
			rest := l
			rest.gaps, l.gaps, l.whole = l.gaps[1:], l.gaps[:1], false
			u.fail(rest, err)
			return u.container(ctx, l)
		}
	}
	err := u.cfg.Runtime.UpdateContainerResources(ctx, l.ID, &runtimeapi.ContainerResources{Linux: to})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		// The update may have had an effect or not.
		l.record.sent = sent{}
		u.creations.outdate(l.pod.UID)
		// The container may have ended meanwhile, which is no error.
		pod, rereadErr := u.cfg.Observer.Reread(ctx, l.pod.UID)
		if rereadErr == nil && !alive(pod, l.ID) {
			return nil
		}
		err = fmt.Errorf("update container %s to %s: %w", l.ID, l, err)
		if !l.lacks(CPUSet) { // others wait only for CPUs, whose update is repeated without delay
			return l.record.resisted(l.String(), err)
		}
		return err
	}
	if l.lacks(CPUSet) {
		l.record.sent = sent{l.at.cpus.CPUSet, time.Now()}
	}
	if err := u.verify(ctx, l); err != nil {
		return err
	}
	if l.whole {
		l.record.gave(l.spec)
	}
	u.tell(ctx, l)
	return nil
}

// verify checks that the kernel has what the runtime says it has set. Other foreign changes are
// left to the next round. If the update included a CPU set, the error is only about that: others
// wait for it.
func (u *update) verify(ctx context.Context, l lack) error {
	now := l.live
	if l.lacks(MemoryNodes) {
		now.Applied.Mems = l.at.mems.String()
	}
	if now = u.reader.read(ctx, now); l.leaves {
		now.at.cpus = l.at.cpus
	}
	left := lack{live: now, gaps: slices.DeleteFunc(now.drift(u.node), func(g gap) bool {
		return !l.lacks(g.what) && !(g.what == CPUQuota && l.lacks(CPUSet))
	})}
	if len(left.gaps) == 0 {
		l.record.unmoved = unmoved{}
		return nil
	}
	err := l.record.resisted(left.String(), left.resistance())
	if l.lacks(CPUSet) && !left.lacks(CPUSet) {
		klog.FromContext(ctx).Info("A container has its CPUs, but not all other settings", "err", err)
		return nil
	}
	return err
}

// tell logs and counts what was done.
func (u *update) tell(ctx context.Context, l lack) {
	what, owner := "a container", "the runtime"
	if l.ID == "" {
		what, owner = "a pod", "the agent"
	}
	log := klog.FromContext(ctx).WithValues("podUID", l.pod.UID, "containerID", l.ID)
	for _, g := range l.gaps {
		if g.repair && !l.tried {
			log.Info("Repaired the "+string(g.what)+" of "+what+", which "+owner+" had not changed",
				"from", g.has, "to", g.want)
			u.cfg.Repaired(g.what)
		} else {
			log.V(2).Info("Changed the "+string(g.what)+" of "+what, "from", g.has, "to", g.want)
		}
	}
}

func alive(pod cri.Pod, containerID string) bool {
	c, _ := pod.ContainerOf(containerID)
	return lives(c)
}
