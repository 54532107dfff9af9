package podstatus

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// entry holds all that the store knows of a pod. It is replaced as a whole.
type entry struct {
	pod.Facts // of the pod's record, as of the last Write
	status    v1.PodStatus
	first     bool // nothing was found out here yet
	seen      bool // a worker saw something of the pod in the runtime
	recalled  bool // it is known what was reported of the pod before
	// sourceEnd is the phase that the pod's source has of it, once it has ended there.
	sourceEnd v1.PodPhase
	version   int
}

func (e entry) active() bool { return e.Admitted && !podspec.Ended(e.status.Phase) }

// table holds the entries, and tells others of changes in order.
type table struct {
	ending  func(types.UID)
	wrote   func(Change)
	changed mailbox.Topic

	// telling is held from a write until wrote has returned, so that an older change is never
	// reported after a newer one. It comes before mu.
	telling sync.Mutex

	mu      sync.Mutex           // guards the fields below
	entries map[types.UID]*entry // each is replaced, never changed
	version int                  // of the newest entry
}

func newTable(ending func(types.UID), wrote func(Change)) *table {
	return &table{ending: ending, wrote: wrote, entries: map[types.UID]*entry{}}
}

func (t *table) get(uid types.UID) (entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[uid]; ok {
		return *e, true
	}
	return entry{}, false
}

func (t *table) all() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.AppendSeq(make([]*entry, 0, len(t.entries)), maps.Values(t.entries))
}

// begin writes the first entry of a pod, whatever is there.
func (t *table) begin(e entry) {
	t.telling.Lock()
	defer t.telling.Unlock()
	before, known := t.get(e.Pod.UID)
	t.put(e)
	t.changed.Publish()
	t.wrote(Change{Pod: e.Shown(), After: e.status, First: true, Again: known && !before.first})
}

// update replaces the entry of a pod by what change makes of it, which may be called again, and
// returns the status then; false: the pod was forgotten.
func (t *table) update(uid types.UID, change func(entry) entry) (v1.PodStatus, bool) {
	for {
		before, ok := t.get(uid)
		if !ok {
			return v1.PodStatus{}, false
		}
		if after := change(before); t.replace(before, after) {
			return after.status, true
		}
	}
}

// replace writes next if before is still the pod's entry, and reports whether it is.
func (t *table) replace(before, next entry) bool {
	t.telling.Lock()
	defer t.telling.Unlock()
	uid := next.Pod.UID
	if now, ok := t.get(uid); !ok || now.version != before.version {
		return false
	}
	if before.active() && podspec.Ended(next.status.Phase) {
		t.ending(uid)
	}
	t.put(next)
	if next.active() != before.active() || next.Shown() != before.Shown() || next.Pod != before.Pod ||
		next.Resize.InProgress != before.Resize.InProgress ||
		next.status.Phase != before.status.Phase || next.Cleared != before.Cleared {
		t.changed.Publish()
	}
	t.wrote(Change{Pod: next.Shown(), Before: before.status, After: next.status, First: next.first,
		Cleared: next.Cleared})
	return true
}

// endedAt notes that the pod has ended for its source. It reports no change: the status is the same.
func (t *table) endedAt(uid types.UID, phase v1.PodPhase) {
	t.telling.Lock()
	defer t.telling.Unlock()
	if e, ok := t.get(uid); ok && e.sourceEnd != phase {
		e.sourceEnd = phase
		t.put(e)
	}
}

// put is called with telling held.
func (t *table) put(e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++
	e.version = t.version
	t.entries[e.Pod.UID] = &e
}

// drop forgets a pod.
func (t *table) drop(uid types.UID) {
	t.telling.Lock()
	defer t.telling.Unlock()
	if e, ok := t.take(uid); ok {
		t.wrote(Change{Pod: e.Shown(), Before: e.status})
	}
}

func (t *table) take(uid types.UID) (*entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[uid]
	delete(t.entries, uid)
	t.changed.Publish()
	return e, ok
}
