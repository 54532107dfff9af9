package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
)

// Reasons of events about a container's exclusive CPUs.
const (
	reasonOffline = "CPUOffline"
	reasonOnline  = "CPUOnline"
)

// cpus records events for pods whose exclusive CPUs go offline or come back.
type cpus struct {
	cfg   Config
	known offlineCPUs
}

func (c *cpus) round() {
	h := c.cfg.Hardware()
	if h.CPUs == nil {
		return // no container has exclusive CPUs
	}
	pods := map[types.UID]*v1.Pod{}
	held := map[types.UID]allocation.Pod{}
	for _, one := range c.cfg.holding() {
		pods[one.UID], held[one.UID] = one.spec, one.Pod
	}
	for _, change := range c.known.update(held, h.Machine.Online()) {
		kind, reason := change.event()
		c.cfg.Tell(pods[change.pod], kind, reason, change.message(c.cfg.Unified))
	}
}

// ownerKey identifies a container with exclusive CPUs.
type ownerKey struct {
	pod       types.UID
	container string
}

func (k ownerKey) compare(o ownerKey) int {
	return cmp.Or(cmp.Compare(k.pod, o.pod), cmp.Compare(k.container, o.container))
}

// offlineCPUs holds the containers' exclusive CPUs that are known to be offline.
type offlineCPUs map[ownerKey]cpuset.CPUSet

// cpuChange is a change of a container's exclusive CPUs that are offline.
type cpuChange struct {
	ownerKey
	own, before, now cpuset.CPUSet // before and now are the offline ones
}

// update compares the known offline CPUs with the present ones, records these, and returns the
// changes by pod and container.
func (known offlineCPUs) update(held map[types.UID]allocation.Pod,
	online cpuset.CPUSet) []cpuChange {
	now := offlineCPUs{}
	var changes []cpuChange
	for uid, pod := range held {
		for name, c := range pod.Containers {
			key := ownerKey{uid, name}
			change := cpuChange{key, c.CPUs(), known[key], c.CPUs().Difference(online)}
			if !change.now.IsEmpty() {
				now[key] = change.now
			}
			if change.lost() || change.regained() {
				changes = append(changes, change)
			}
		}
	}
	clear(known)
	maps.Copy(known, now)
	slices.SortFunc(changes, func(a, b cpuChange) int { return a.compare(b.ownerKey) })
	return changes
}

func (c cpuChange) lost() bool { return !c.now.IsSubsetOf(c.before) }

func (c cpuChange) regained() bool { return !c.before.IsSubsetOf(c.now) }

func (c cpuChange) event() (kind, reason string) {
	if c.lost() {
		return v1.EventTypeWarning, reasonOffline
	}
	return v1.EventTypeNormal, reasonOnline
}

// message says what the change means for the container. On cgroup v1, processes that lost their
// last CPU are moved out of their cgroup for good.
func (c cpuChange) message(unified bool) string {
	left, back := c.own.Difference(c.now), c.before.Difference(c.now)
	switch {
	case c.lost() && left.IsEmpty() && unified:
		return fmt.Sprintf("all CPUs %s of container %s are offline: it runs on CPUs of others "+
			"until they are online again; bring them online, or delete the pod so that it gets "+
			"others", c.now, c.container)
	case c.lost() && left.IsEmpty():
		return fmt.Sprintf("all CPUs %s of container %s are offline: it runs on CPUs of others "+
			"until it is restarted with its CPUs online; or delete the pod so that it gets others",
			c.now, c.container)
	case c.lost():
		return fmt.Sprintf("CPUs %s of container %s are offline: it runs on %s alone; bring them "+
			"online, or delete the pod so that it gets others", c.now, c.container, left)
	case c.before.Equals(c.own) && !unified:
		return fmt.Sprintf("CPUs %s of container %s are online again: restart the container so "+
			"that it runs on %s", back, c.container, left)
	default:
		return fmt.Sprintf("CPUs %s of container %s are online again: it runs on %s",
			back, c.container, left)
	}
}
