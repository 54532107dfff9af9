package eviction

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// refreshing is how long pods are awaited that are measured anew: one that was quick to measure may have
// made many files since.
const refreshing = 10 * time.Second

// refresh is the last time when pods were to be measured anew. The pods that are measured since are
// coming, soon or late.
type refresh struct {
	asked      time.Time
	soon, late sets.Set[types.UID]
	// doubt: the last eviction did not bring back what was expected.
	doubt bool
}

// due reports whether pods are to be measured anew before one goes: none was measured since anything was
// done last, or since an eviction was in vain.
func (r refresh) due(s state, acted, now time.Time) bool {
	return r.asked.Before(acted) || r.asked.Before(s.doubt) || now.Sub(r.asked) >= period
}

// waits reports whether to wait for the pods that are measured anew; old ones are not measured yet. If what is
// known of pods is enough to relieve (reaches), it waits at most a quarter of the time that the rest lasts.
// Otherwise the end of no pod is known to help, and pods that take long to measure are awaited too, as in doubt.
func (r refresh) waits(old []types.UID, lasts time.Duration, reaches bool, now time.Time) bool {
	most := refreshing
	if reaches && lasts < horizon {
		most = min(most, lasts/4)
	}
	return now.Sub(r.asked) < most &&
		(r.soon.HasAny(old...) || (r.doubt || !reaches) && r.late.HasAny(old...))
}

// refreshes reports whether to wait for pods to be measured anew before one goes for a disk: whatever was
// measured before may have grown since.
func (m *Manager) refreshes(s Measured, r Readings, v verdict, now time.Time) bool {
	signal := v.relieve.Signal
	if !signal.OnDisk() {
		return false
	}
	order, _ := m.cfg.rank(s, signal, v.need())
	if m.refresh.due(m.state, m.acted, now) {
		m.refresh = refresh{asked: now, doubt: m.state.doubt.After(m.refresh.asked)}
		if old := measuredBefore(order, now); len(old) > 0 {
			soon, late := m.cfg.Anew(old)
			m.refresh.soon, m.refresh.late = sets.New(soon...), sets.New(late...)
		}
	}
	var used int64
	for i := range order {
		used += useOf(&order[i], signal, layoutOf(s.Summary)).used
	}
	return m.refresh.waits(measuredBefore(order, m.refresh.asked), m.state.lasts(signal, r, now),
		used >= v.need(), now)
}

// measuredBefore returns the pods with something on disks that was last measured before at; pods that may
// have grown most since come first.
func measuredBefore(all []Candidate, at time.Time) (out []types.UID) {
	var old []*Candidate
	for i := range all {
		if c := &all[i]; c.Stats != nil && measuredAt(c).Before(at) {
			old = append(old, c)
		}
	}
	slices.SortStableFunc(old, func(a, b *Candidate) int { return int(min(max(b.Grown-a.Grown, -1), 1)) })
	for _, c := range old {
		out = append(out, c.Pod.UID)
	}
	return out
}

// measuredAt returns when the oldest measurement of a pod's own volumes, logs and files was made; zero: a
// volume that its containers may have filled was never measured.
func measuredAt(c *Candidate) (at time.Time) {
	if fs := c.Stats.EphemeralStorage; fs != nil {
		at = fs.Time.Time
	}
	measured := sets.New[string]()
	for _, v := range c.Stats.VolumeStats {
		measured.Insert(v.Name)
		if v.PVCRef == nil && v.Time.Time.Before(at) {
			at = v.Time.Time
		}
	}
	for _, v := range c.Pod.Spec.Volumes {
		if v.EmptyDir != nil && len(c.Stats.Containers) > 0 && !measured.Has(v.Name) {
			return time.Time{}
		}
	}
	return at
}

// rank orders the pods that may be evicted for the signal until need is free; spared is the number of
// critical pods.
func (p PodFacts) rank(s Measured, of Signal, need int64) (order []Candidate, spared int) {
	used, pods := byUID(s.Summary), p.Pods()
	all := make([]Candidate, len(pods))
	for i, pod := range pods {
		all[i] = Candidate{pod, used[pod.UID], p.Exclusive(pod.UID), s.Beyond[pod.UID]}
	}
	order = rank(all, of, layoutOf(s.Summary), need)
	return order, len(all) - len(order)
}
