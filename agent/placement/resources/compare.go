package resources

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// view holds what containers and pods lack.
type view struct {
	lacks []lack
	// resting holds the errors of containers that must not be given their CPUs again yet.
	resting []error
	held    failed // by other updates that rest
}

// lack lists values that a container or a pod's cgroup should have and does not, or some of them.
type lack struct {
	live
	gaps  []gap // the CPUs' first
	whole bool  // with this step, nothing is lacking any more
	// leaves: the container leaves CPUs, and gains others in a later step; at has what it keeps.
	leaves bool
}

// gap is one difference.
type gap struct {
	what            Kind
	name, want, has string
	file            string // the kernel's file
	volume          string // whose size it is
	phase           phase
	// keeps has the CPUs that stay when a CPU set leaves some and gains others; empty: it does not do both, or
	// none stay.
	keeps cpuset.CPUSet
	// repair is set if the runtime reports, or the kernel had, what the container should have.
	repair bool
}

func (l lack) String() string {
	var parts []string
	for _, g := range l.gaps {
		if g.what != CPUQuota || !l.lacks(CPUSet) {
			parts = append(parts, g.name+" "+g.want)
		}
	}
	return strings.Join(parts, ", ")
}

func (l lack) lacks(what Kind) bool {
	return slices.ContainsFunc(l.gaps, func(g gap) bool { return g.what == what })
}

// compare finds what differs from what it should be. Where nothing does, the record says so of the
// present spec.
func compare(all []live, n *Node, now time.Time) view {
	v := view{held: failed{pods: map[types.UID]bool{}, ids: map[string]bool{}}}
	for _, c := range all {
		l := lack{live: c, gaps: c.gaps(n)}
		if len(l.gaps) == 0 && !c.restarts() {
			c.record.gave(c.spec)
			continue
		}
		err := c.record.resting(l.String(), now)
		if err == nil {
			v.lacks = append(v.lacks, l)
			continue
		}
		if v.held.by(l); l.lacks(CPUSet) {
			v.resting = append(v.resting, err)
		}
	}
	v.held.cpus = false // one stubborn container does not keep all others from their CPUs
	return v
}

// gaps lists what a container or pod lacks.
func (c live) gaps(n *Node) []gap {
	out := c.drift(n)
	if c.restarts() {
		return out
	}
	for _, g := range c.resized(n) {
		if g.what != CPUQuota || c.quota == (cgroups.CPULimit{}) {
			out = append(out, g)
		}
	}
	return out
}

// drift lists what differs in the kernel, or in the runtime's report.
func (c live) drift(n *Node) (out []gap) {
	sent, reported, want := c.sent(), c.Applied.Mems, c.at
	has := ptr.Deref(c.kernel.cpus, sent)
	if same := func(has string) bool {
		return has == want.cpus.text || matches(has, want.cpus.CPUSet, n.online.CPUSet) ||
			want.within && inside(has, want.cpus.CPUSet)
	}; !want.cpus.IsEmpty() && !same(has) {
		g := gap{what: CPUSet, name: "CPUs", want: want.cpus.text, has: has, file: "cpuset.cpus",
			repair: c.kernel.cpus != nil && same(sent)}
		g.phase, g.keeps = phaseOfCPUs(has, want.cpus.CPUSet, want.exclusive)
		out = append(out, g)
	}
	has = ptr.Deref(c.kernel.mems, reported)
	if !want.mems.IsEmpty() && !matchesNodes(has, want.mems, n.backed) {
		out = append(out, gap{what: MemoryNodes, name: "memory of nodes", want: want.mems.String(), has: has,
			file: "cpuset.mems", repair: c.kernel.mems != nil && matchesNodes(reported, want.mems, n.backed)})
	}
	if has := c.kernel.quota; has != nil && !has.Same(c.quota) {
		out = append(out, gap{what: CPUQuota, name: "CPU quota", want: c.quota.String(), has: has.String(),
			file: "CPU quotas", phase: phaseOfQuota(*has, c.quota), repair: c.record.limited == c.quota})
	}
	return out
}

// resized lists what differs since the spec that the container or pod was last given.
func (c live) resized(n *Node) []gap {
	if c.spec == nil || c.record.given == nil || c.record.given == c.spec {
		return nil
	}
	want := c.limits(n, c.spec)
	if want == (limits{}) { // the spec has no such container
		return nil
	}
	given := c.limits(n, c.record.given)
	if c.record.found != nil {
		given = *c.record.found
	}
	out := want.gaps(given)
	if c.ID == "" {
		out = append(out, c.sizes(n)...)
	}
	return out
}

// sent returns the CPU set that the runtime has: the one it reported, or the last one sent to it,
// if that is newer or the runtime reports none.
func (c live) sent() string {
	t := c.record.sent
	if !t.at.IsZero() && (c.Applied.CPUs == "" || !t.at.Before(c.pod.ReadAt)) {
		return t.cpus.String()
	}
	return c.Applied.CPUs
}

// matches reports whether a set lets a container run on exactly the online CPUs in want. On cgroup
// v2 it may also contain offline CPUs, which the kernel remembers there.
func matches(has string, want, online cpuset.CPUSet) bool {
	set, err := topology.ParseCPUs(has)
	return err == nil && !set.IsEmpty() && set.Intersection(online).Equals(want)
}

// inside reports whether a set lets a container run on some of the wanted CPUs and on no others.
func inside(has string, want cpuset.CPUSet) bool {
	set, err := topology.ParseCPUs(has)
	return err == nil && !set.IsEmpty() && set.IsSubsetOf(want)
}

// matchesNodes does the same for memory nodes, which go offline like CPUs.
func matchesNodes(has string, want, backed topology.NodeSet) bool {
	set, err := topology.ParseNodeSet(has)
	return err == nil && set.Intersect(backed) == want
}

// resistance is the error for a container whose cgroup is still different after the runtime updated
// it.
func (l lack) resistance() error {
	var has []string
	for _, g := range l.gaps {
		has = append(has, fmt.Sprintf("%q; look for another program that writes %s", g.has, g.file))
	}
	return fmt.Errorf("update container %s to %s: the runtime has done it and the cgroup has %s",
		l.ID, l, strings.Join(has, ", and "))
}
