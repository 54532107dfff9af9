package cpupool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// view holds what live containers lack, by container id. Containers that lack nothing are left out.
type view struct {
	lacks map[string]lack
	// resting holds the errors of containers that must not be given their CPUs again yet.
	resting []error
}

// lack lists what a container should have and does not. Empty fields need no change.
type lack struct {
	live
	cpus  cpuset.CPUSet
	mems  topology.NodeSet
	quota cgroups.CPULimit // set whenever cpus is: both are updated together
	gaps  []gap            // the CPUs' first
}

// gap describes one difference, for texts.
type gap struct {
	what            Repair
	name, want, has string
	file            string // the kernel's file
	// repair is set if the runtime reports what the container should have.
	repair bool
}

func (l lack) String() string {
	var parts []string
	for _, g := range l.gaps {
		if g.what != CPUQuota || l.cpus.IsEmpty() {
			parts = append(parts, g.name+" "+g.want)
		}
	}
	return strings.Join(parts, ", ")
}

// asks reports whether the update covers what.
func (l lack) asks(what Repair) bool {
	return what == CPUQuota && !l.cpus.IsEmpty() ||
		slices.ContainsFunc(l.gaps, func(g gap) bool { return g.what == what })
}

// compare finds the containers that differ from what they should have.
func compare(containers []live, w wanted, now time.Time) view {
	v := view{lacks: map[string]lack{}}
	for _, c := range containers {
		l := c.lacks(w)
		if len(l.gaps) == 0 {
			continue
		}
		err := c.record.resting(l.String(), now)
		if err == nil {
			v.lacks[c.ID] = l
		} else if !l.cpus.IsEmpty() {
			v.resting = append(v.resting, err)
		}
	}
	return v
}

// lacks returns what a container lacks.
func (c live) lacks(w wanted) lack {
	l, told, reported := lack{live: c}, c.told(), c.Applied.Mems
	cpus, text := w.of(c, told)
	has := ptr.Deref(c.kernel.cpus, told)
	if !cpus.IsEmpty() && has != text && !matches(has, cpus, w.online) {
		l.cpus, l.quota = cpus, w.quota(c)
		l.gaps = append(l.gaps, gap{CPUSet, "CPUs", text, has, "cpuset.cpus",
			c.kernel.cpus != nil && matches(told, cpus, w.online)})
	}
	mems := w.mems(c)
	has = ptr.Deref(c.kernel.mems, reported)
	if !mems.IsEmpty() && !matchesNodes(has, mems, w.backed) {
		l.mems = mems
		l.gaps = append(l.gaps, gap{MemoryNodes, "memory of nodes", mems.String(), has,
			"cpuset.mems", c.kernel.mems != nil && matchesNodes(reported, mems, w.backed)})
	}
	if quota := w.quota(c); c.kernel.quota != nil && !c.kernel.quota.Same(quota) {
		l.quota = quota
		l.gaps = append(l.gaps, gap{CPUQuota, "CPU quota", quota.String(),
			c.kernel.quota.String(), "CPU quotas", c.record.limited == quota})
	}
	return l
}

// told returns the CPU set that the runtime has: the one it reported, or the last one it was told,
// if that is newer or the runtime reports none.
func (c live) told() string {
	t := c.record.told
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
