package allocation

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// A pod with pod-level resources can have a pool of CPUs and memory (KEP-5526). The pool is placed first, as
// if the pod were a container; containers then get parts of it, and those that do not qualify share the rest.

// WholePod is the name under which a pod has its pool, beside its containers, which hold parts of it. No
// container has this name.
const WholePod = ""

// Pool returns what the pod has as a whole; empty: only its containers have something.
func (p Pod) Pool() Container { return p.Containers[WholePod] }

// SharesCPUs reports whether the container has CPUs together with others of its pod.
func (p Pod) SharesCPUs(pod *v1.Pod, c *v1.Container) bool {
	return !p.Pool().CPUs().IsEmpty() && cpumanager.SharesWithinPod(pod, c)
}

// SharesMemory reports whether the container has memory together with others of its pod.
func (p Pod) SharesMemory(pod *v1.Pod, c *v1.Container) bool {
	return len(p.Pool().Memory()) > 0 && memory.SharesWithinPod(pod, c)
}

// Pools reports whether the pod gets a pool. A pod that runs keeps its pool, or goes on without one, whatever
// the rules are. One whose claims give CPUs to its containers gets none.
func (v View) Pools(pod *v1.Pod) bool {
	if v.Keep == KeepResized || v.Keep == KeepAll && !v.Own.IsEmpty() {
		return !v.Own.Pool().IsEmpty()
	}
	if podspec.OwnOf(pod, v.Rules) != podspec.OwnPool {
		return false
	}
	for c := range podspec.Containers(pod) {
		if v.byClaims(pod, c) {
			return false
		}
	}
	return v.CPUs != nil && cpumanager.Pool(pod, v.Rules) > 0 ||
		v.Memory != nil && len(memory.PodRequests(pod, v.Rules)) > 0
}

// pooler is a provider of what a pod can have as a whole.
type pooler interface {
	// pool returns the demand of the pod; the error says that nothing would be left to share.
	pool() (demand, error)
	// share returns what is left of the pool now for containers without a part of their own; nil: the
	// container has one, or there is no pool.
	share(c *v1.Container) Holding
}

// pooling places a pod's pool and what containers share of it.
type pooling struct{ *draft }

// sharers names the containers of which shares is true, if the pod gets a pool.
func (d pooling) sharers(shares func(*v1.Pod, *v1.Container) bool) sets.Set[string] {
	if !d.pools {
		return nil
	}
	out := sets.New[string]()
	for c := range podspec.Containers(d.pod) {
		if shares(d.pod, c) {
			out.Insert(c.Name)
		}
	}
	return out
}

// claimant returns the pod as a whole, which is placed like a container, before all others.
func (d pooling) claimant() claimant {
	a := claimant{
		Container: &v1.Container{Name: WholePod}, kind: podspec.Regular, resizes: d.view.Keep == KeepResized,
	}
	for _, p := range able[pooler](d.providers) {
		one, err := p.pool()
		if a.demands = append(a.demands, one); err != nil && a.err == nil {
			a.err = rejected(err)
		}
	}
	return a
}

// rests returns what is left of the pool now for the container; nothing, if it has parts of its own, keeps
// exactly what it has, or is the pod itself.
func (d pooling) rests(a claimant) (out []Holding) {
	keeps := d.view.Keep == KeepAll || d.view.Keep == KeepResized
	if !d.pools || a.Name == WholePod || keeps && !d.view.Own.Containers[a.Name].IsEmpty() {
		return nil
	}
	for _, p := range able[pooler](d.providers) {
		if rest := p.share(a.Container); rest != nil {
			out = append(out, rest)
		}
	}
	return out
}

// own returns what the container may keep: not what it shares, which follows from the parts of others.
func (d pooling) own(a claimant) Container {
	own := d.view.Own.Containers[a.Name]
	for _, rest := range d.rests(a) {
		own = slices.DeleteFunc(slices.Clone(own), func(h Holding) bool { return h.Kind() == rest.Kind() })
	}
	return own
}

// share returns what the container gets together with its share of what is left of the pool now.
func (d pooling) share(a claimant, got Container) Container {
	for _, rest := range d.rests(a) {
		got = got.With(rest)
	}
	return got
}

// shareRest gives sidecars and regular containers what the parts of others leave of the pool.
func (d pooling) shareRest() {
	for _, a := range d.containers {
		if a.kind != podspec.Init {
			d.plan.Pod.Containers[a.Name] = d.share(a, d.plan.Pod.Containers[a.Name])
		}
	}
}

// ReasonEmptyPool is the kubelet's reason for rejecting a pod whose containers leave nothing of its pool to
// share.
const ReasonEmptyPool = "EmptyPodSharedPoolError"

// EmptyPodPoolError says that nothing of a pod's pool is left for containers that share it. The text is the
// kubelet's.
type EmptyPodPoolError struct {
	Resource v1.ResourceName
	// Init: init containers lack it, beside sidecars that started before.
	Init bool
}

func (e *EmptyPodPoolError) Error() string {
	what, left := string(e.Resource), "memory"
	if e.Resource == v1.ResourceCPU {
		what, left = "cpus", "cpus"
	}
	if e.Init {
		return fmt.Sprintf("pod rejected, pod has shared init containers but no %s available for them", what)
	}
	return fmt.Sprintf("pod rejected, sum of exclusive container %s requests equals pod budget, leaving no %s "+
		"for shared containers", e.Resource, left)
}

// Reason returns the reason for rejecting a pod.
func (*EmptyPodPoolError) Reason() string { return ReasonEmptyPool }

// checkPool checks that a pool of this size has the containers' parts, which of returns, and some for those
// without a part.
func checkPool(pod *v1.Pod, pool map[v1.ResourceName]uint64,
	of func(*v1.Container) map[v1.ResourceName]uint64) error {
	lasting, shared := map[v1.ResourceName]uint64{}, false
	exhausted := func(init bool) error {
		for _, name := range slices.Sorted(maps.Keys(pool)) {
			if lasting[name] >= pool[name] {
				return &EmptyPodPoolError{name, init}
			}
		}
		return nil
	}
	for c, kind := range podspec.Containers(pod) {
		part := of(c)
		switch {
		case len(part) == 0 && kind == podspec.Init:
			if err := exhausted(true); err != nil {
				return err
			}
		case len(part) == 0:
			shared = true
		case kind != podspec.Init:
			for name, n := range part {
				lasting[name] += n
			}
		}
	}
	if shared {
		if err := exhausted(false); err != nil {
			return err
		}
	}
	peaks := podspec.Peaks(pod, of)
	for _, name := range slices.Sorted(maps.Keys(peaks)) {
		if peaks[name] > pool[name] {
			return fmt.Errorf("its containers request %d of %s, and the pod as a whole %d", peaks[name], name,
				pool[name])
		}
	}
	return nil
}

// whose names the container in messages, or the pod.
func whose(container string) string {
	if container == WholePod {
		return "the pod"
	}
	return "container " + container
}
