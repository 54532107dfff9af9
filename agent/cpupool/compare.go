package cpupool

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// view is what live containers should have and have not, by container id. Those that have what they
// should are left out.
type view struct {
	online cpuset.CPUSet
	backed topology.NodeSet
	lacks  map[string]lack
	// resting are the containers whose turn to be given their CPUs again has not come.
	resting []error
}

// lack is what a container should have and has not. What is empty it has, or is left alone.
type lack struct {
	subject
	record  *record
	cpus    cpuset.CPUSet
	has     string // in place of cpus
	mems    topology.NodeSet
	hasMems string
	// quota is also there whenever cpus is: they belong together.
	quota, hasQuota cgroups.CPULimit
	// repairs are what the runtime believes that the container has as it should.
	repairs []Repair
}

func (l lack) isEmpty() bool {
	return l.cpus.IsEmpty() && l.mems.IsEmpty() && l.quota == (cgroups.CPULimit{})
}

func (l lack) String() string {
	var parts []string
	if !l.cpus.IsEmpty() {
		parts = append(parts, "CPUs "+l.cpus.String())
	}
	if !l.mems.IsEmpty() {
		parts = append(parts, "memory of nodes "+l.mems.String())
	}
	if l.cpus.IsEmpty() && l.quota != (cgroups.CPULimit{}) {
		parts = append(parts, "CPU quota "+l.quota.String())
	}
	return strings.Join(parts, ", ")
}

// compare finds the containers that have not what they should.
func compare(containers []live, w wanted, now time.Time) view {
	v := view{online: w.online, backed: w.backed, lacks: map[string]lack{}}
	for _, c := range containers {
		l := c.lacks(w)
		if l.isEmpty() {
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
	l := lack{subject: subject{c.pod.UID, c.ID}, record: c.record}
	repair := func(what Repair, is bool) {
		if is && c.record.unmoved.tries == 0 {
			l.repairs = append(l.repairs, what)
		}
	}
	told := c.told()
	want, text := w.of(c, told)
	has := told
	if c.kernel.cpus != nil {
		has = *c.kernel.cpus
	}
	if !want.IsEmpty() && has != text && !matches(has, want, w.online) {
		l.cpus, l.has, l.quota = want, has, w.quota(c)
		repair(CPUSet, c.kernel.cpus != nil && matches(told, want, w.online))
	}
	mems, hasMems := w.mems(c), c.Cpuset.Mems
	if c.kernel.mems != nil {
		hasMems = *c.kernel.mems
	}
	if !mems.IsEmpty() && !matchesNodes(hasMems, mems, w.backed) {
		l.mems, l.hasMems = mems, hasMems
		repair(MemoryNodes, c.kernel.mems != nil && matchesNodes(c.Cpuset.Mems, mems, w.backed))
	}
	if quota := w.quota(c); c.kernel.quota != nil && !c.kernel.quota.Same(quota) {
		l.quota, l.hasQuota = quota, *c.kernel.quota
		repair(CPUQuota, c.record.limited == quota)
	}
	return l
}

// told is the set that the runtime has: what it reported, or was told since, or was told and does
// not report.
func (c live) told() string {
	t := c.record.told
	if !t.at.IsZero() && (c.Cpuset.CPUs == "" || !t.at.Before(c.pod.ReadAt)) {
		return t.cpus.String()
	}
	return c.Cpuset.CPUs
}

// matches reports whether a set lets a container run on the CPUs of want, which are online, and on
// no others. Offline ones in it are cgroup v2's way to remember them.
func matches(has string, want, online cpuset.CPUSet) bool {
	set, err := cpuset.Parse(has)
	return err == nil && !set.IsEmpty() && set.Intersection(online).Equals(want)
}

// matchesNodes is the same of memory nodes, which come and go like CPUs.
func matchesNodes(has string, want, backed topology.NodeSet) bool {
	set, err := topology.ParseNodeSet(has)
	return err == nil && set.Intersect(backed) == want
}

// left is what is lacking still, by what the kernel has now.
func (l lack) left(now inKernel, v view) lack {
	if now.cpus == nil || matches(*now.cpus, l.cpus, v.online) {
		l.cpus = cpuset.New()
	} else {
		l.has = *now.cpus
	}
	if now.mems == nil || matchesNodes(*now.mems, l.mems, v.backed) {
		l.mems = topology.NodeSet{}
	} else {
		l.hasMems = *now.mems
	}
	if now.quota == nil || now.quota.Same(l.quota) {
		l.quota = cgroups.CPULimit{}
	} else {
		l.hasQuota = *now.quota
	}
	return l
}

// resistance says what a container has in place of what it should have, although the runtime was
// told.
func (l lack) resistance() error {
	const other = "%q; look for another program that writes %s"
	var has []string
	if !l.cpus.IsEmpty() {
		has = append(has, fmt.Sprintf(other, l.has, "cpuset.cpus"))
	}
	if !l.mems.IsEmpty() {
		has = append(has, fmt.Sprintf(other, l.hasMems, "cpuset.mems"))
	}
	if l.quota != (cgroups.CPULimit{}) {
		has = append(has, fmt.Sprintf(other, l.hasQuota, "CPU quotas"))
	}
	return fmt.Errorf("update container %s to %s: the runtime has done it and the cgroup has %s",
		l.container, l, strings.Join(has, ", and "))
}
