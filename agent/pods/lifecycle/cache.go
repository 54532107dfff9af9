package lifecycle

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

// cache holds the newest observation of each pod. Observations are ordered by when the runtime was
// asked, and among equal times by when the read began here; an older one never replaces a newer
// one.
type cache struct {
	mu      sync.Mutex
	seq     uint64
	entries map[types.UID]*entry
	census  census // of all entries
}

// census counts the runtime's pods and containers.
type census struct {
	pods       int                        // with a ready sandbox
	containers map[cri.ContainerState]int // by state
}

// count adds n times the pod.
func (c *census) count(pod cri.Pod, n int) {
	if len(pod.Sandboxes) > 0 && pod.Sandboxes[0].Ready {
		c.pods += n
	}
	for _, ctr := range pod.Containers {
		if c.containers[ctr.State] += n; c.containers[ctr.State] == 0 {
			delete(c.containers, ctr.State)
		}
	}
}

// entry outlives its pod while the pod is being read, so that a read that began before the pod
// vanished cannot bring it back.
type entry struct {
	pod    cri.Pod
	at     stamp
	reads  int
	failed bool // the read that ended last failed
}

// stamp orders observations.
type stamp struct {
	readAt time.Time
	seq    uint64
}

func (s stamp) before(o stamp) bool {
	return cmp.Or(s.readAt.Compare(o.readAt), cmp.Compare(s.seq, o.seq)) < 0
}

// reading is a read in progress; it ends with commit or abort.
type reading struct {
	seq  uint64
	last cri.Pod // the observation when it began; always has the UID
}

func newCache() *cache {
	return &cache{
		entries: map[types.UID]*entry{},
		census:  census{containers: map[cri.ContainerState]int{}},
	}
}

func (p *entry) known() bool { return len(p.pod.Sandboxes)+len(p.pod.Containers) > 0 }

func (c *cache) begin(uid types.UID) reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[uid]
	if !ok {
		e = &entry{pod: cri.Pod{UID: uid}}
		c.entries[uid] = e
	}
	e.reads++
	c.seq++
	return reading{seq: c.seq, last: e.pod}
}

// commit offers an observation. It returns the newest one, and whether the pod has changed.
func (c *cache) commit(r reading, pod cri.Pod) (newest cri.Pod, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r.last.UID]
	e.reads--
	e.failed = false
	if at := (stamp{pod.ReadAt, r.seq}); e.at.before(at) {
		changed = !sameFacts(e.pod, pod)
		c.census.count(e.pod, -1)
		c.census.count(pod, 1)
		e.pod, e.at = pod, at
	}
	newest = e.pod
	c.dropLocked(newest.UID, e)
	return newest, changed
}

// abort ends a failed read; the next relist reads the pod again.
func (c *cache) abort(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r.last.UID]
	e.reads--
	e.failed = true
	c.dropLocked(r.last.UID, e)
}

func (c *cache) dropLocked(uid types.UID, e *entry) {
	if e.reads == 0 && !e.known() && !e.failed {
		delete(c.entries, uid)
	}
}

func (c *cache) get(uid types.UID) (cri.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[uid]; ok && e.known() {
		return e.pod, true
	}
	return cri.Pod{UID: uid}, false
}

// all returns all observations, ordered by UID.
func (c *cache) all() []cri.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]cri.Pod, 0, len(c.entries))
	for _, e := range c.entries {
		if e.known() {
			out = append(out, e.pod)
		}
	}
	slices.SortFunc(out, func(a, b cri.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// counts returns the present census.
func (c *cache) counts() census {
	c.mu.Lock()
	defer c.mu.Unlock()
	return census{c.census.pods, maps.Clone(c.census.containers)}
}

// owner finds the pod of a container or sandbox.
func (c *cache) owner(id string) (types.UID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, e := range c.entries {
		if slices.ContainsFunc(e.pod.Containers,
			func(c cri.Container) bool { return c.ID == id }) ||
			slices.ContainsFunc(e.pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id }) {
			return uid, true
		}
	}
	return "", false
}

// beginList is begin for a list of all pods.
func (c *cache) beginList() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return c.seq
}

// outdated compares a list with the cache and returns the pods to read, ordered: those whose ids or
// states differ, those that are gone, and those whose last read failed. A pod that was read after
// the list began is up to date.
func (c *cache) outdated(seq uint64, readAt time.Time, listed []cri.Pod) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []types.UID
	here := make(map[types.UID]bool, len(listed))
	for _, pod := range listed {
		here[pod.UID] = true
		e, ok := c.entries[pod.UID]
		if !ok || e.failed || (!sameShape(e.pod, pod) && e.at.before(stamp{readAt, seq})) {
			out = append(out, pod.UID)
		}
	}
	for uid, e := range c.entries {
		gone := e.known() && e.at.before(stamp{readAt, seq})
		if !here[uid] && (gone || e.failed) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// sameFacts compares observations except for their times.
func sameFacts(a, b cri.Pod) bool {
	a.ReadAt, b.ReadAt = time.Time{}, time.Time{}
	return len(a.Sandboxes) == len(b.Sandboxes) && len(a.Containers) == len(b.Containers) &&
		(len(a.Sandboxes)+len(a.Containers) == 0 || reflect.DeepEqual(a, b))
}

// sameShape compares what a list has: ids and states.
func sameShape(a, b cri.Pod) bool {
	return shape(a.Sandboxes, b.Sandboxes, func(s cri.Sandbox) part {
		return part{s.ID, cri.ContainerState(""), s.Ready}
	}) && shape(a.Containers, b.Containers, func(c cri.Container) part {
		return part{c.ID, c.State, false}
	})
}

type part struct {
	id    string
	state cri.ContainerState
	ready bool
}

// shape reports whether both lists have the same parts, in any order.
func shape[T any](a, b []T, of func(T) part) bool {
	if len(a) != len(b) {
		return false
	}
	seen := make(map[part]bool, len(a))
	for _, v := range a {
		seen[of(v)] = true
	}
	return !slices.ContainsFunc(b, func(v T) bool { return !seen[of(v)] })
}
