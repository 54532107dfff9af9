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

// view is what live containers lack, by container id. Those that lack nothing are left out.
type view struct {
	lacks map[string]lack
	// resting are the containers whose turn to be given their CPUs again has not come.
	resting []error
}

// lack is what a container should have and has not. What is empty it has, or is left alone.
type lack struct {
	live
	cpus  cpuset.CPUSet
	mems  topology.NodeSet
	quota cgroups.CPULimit // also there whenever cpus is: they belong together
	gaps  []gap            // that of the CPUs first
}

// gap is a lack in words.
type gap struct {
	what            Repair
	name, want, has string
	file            string // where the kernel has it
	// repair: the runtime believes that the container has it as it should.
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

// asks reports whether the runtime is asked for that.
func (l lack) asks(what Repair) bool {
	return what == CPUQuota && !l.cpus.IsEmpty() ||
		slices.ContainsFunc(l.gaps, func(g gap) bool { return g.what == what })
}

// compare finds the containers that have not what they should.
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

// lacks is what a container lacks.
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

// told is the set that the runtime has: what it reported, or was told since, or was told and does
// not report.
func (c live) told() string {
	t := c.record.told
	if !t.at.IsZero() && (c.Applied.CPUs == "" || !t.at.Before(c.pod.ReadAt)) {
		return t.cpus.String()
	}
	return c.Applied.CPUs
}

// matches reports whether a set lets a container run on the CPUs of want, which are online, and on
// no others. Offline ones in it are cgroup v2's way to remember them.
func matches(has string, want, online cpuset.CPUSet) bool {
	set, err := topology.ParseCPUs(has)
	return err == nil && !set.IsEmpty() && set.Intersection(online).Equals(want)
}

// matchesNodes is the same of memory nodes, which come and go like CPUs.
func matchesNodes(has string, want, backed topology.NodeSet) bool {
	set, err := topology.ParseNodeSet(has)
	return err == nil && set.Intersect(backed) == want
}

// resistance says what a container has in place of what it should have, although the runtime was
// told.
func (l lack) resistance() error {
	var has []string
	for _, g := range l.gaps {
		has = append(has, fmt.Sprintf("%q; look for another program that writes %s", g.has, g.file))
	}
	return fmt.Errorf("update container %s to %s: the runtime has done it and the cgroup has %s",
		l.ID, l, strings.Join(has, ", and "))
}
