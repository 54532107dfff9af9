package localstorage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/internal/await"
)

// Looks at pods' processes take within all together, and withinPod each; lookers look at once.
const within, withinPod, lookers = 300 * time.Millisecond, 100 * time.Millisecond, 4

// Beyond adds to a pod's measured use of the node's disks what it holds, or may have written, besides.
type Beyond struct {
	// Held are the deleted files that its processes hold open.
	Held held.Files
	// Grown is how many bytes its processes may have written since its volumes were measured: not more
	// than they wrote, nor than the disk grew.
	Grown uint64
	// Partial: not all of its volumes could be measured.
	Partial bool
}

// Beyond looks for what pods use beyond what was measured, first at those that may have grown most. If
// there is no time for a pod, the result has only what is known without its processes.
func (m *Meter) Beyond(ctx context.Context) map[types.UID]Beyond {
	out := m.grown()
	if m.cfg.Processes == nil {
		return out
	}
	uids := slices.SortedFunc(maps.Keys(out), func(a, b types.UID) int {
		return cmp.Or(cmp.Compare(out[b].Grown, out[a].Grown), cmp.Compare(a, b))
	})
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found := await.All(uids, lookers, func(uid types.UID) (f held.Files) {
		if ctx.Err() == nil {
			f = m.held(ctx, uid)
		}
		return f
	})
	for i, uid := range uids {
		one := out[uid]
		one.Held = found[i]
		out[uid] = one
	}
	return out
}

func (m *Meter) held(ctx context.Context, uid types.UID) held.Files {
	own, cancel := context.WithTimeout(ctx, withinPod)
	defer cancel()
	files := m.cfg.Processes.Held(own, uid, m.cfg.Root)
	files.Partial = files.Partial && ctx.Err() == nil // else it was others that took the time
	return files
}

// grown says what is known of pods without a look at what their processes hold.
func (m *Meter) grown() map[types.UID]Beyond {
	out := map[types.UID]Beyond{}
	for _, pod := range m.cfg.Pods() {
		h, _ := m.known(pod.UID)
		one := Beyond{Partial: slices.ContainsFunc(h.last, func(v Volume) bool { return v.Local && v.Used.Partial })}
		if m.cfg.Processes != nil && slices.ContainsFunc(h.last, func(v Volume) bool { return v.Local }) {
			one.Grown = m.cfg.Processes.Wrote(pod.UID).Since(h.wrote)
		}
		out[pod.UID] = one
	}
	disk := m.diskNow()
	for uid, one := range out {
		h, _ := m.known(uid)
		one.Grown = min(one.Grown, disk.grown-min(disk.grown, h.grown))
		out[uid] = one
	}
	return out
}

// diskNow returns how much the disk has grown until now.
func (m *Meter) diskNow() disk {
	m.mu.Lock()
	last := m.disk
	m.mu.Unlock()
	return last.next(m.cfg.Root)
}
