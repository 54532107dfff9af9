package eviction

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// most is how many pods, of those that go first, have their volumes measured anew before one goes: more
	// than a node's usual number.
	most = 256
	// recent is an age that needs nothing anew; refreshing is how long that is awaited.
	recent, refreshing = 5 * time.Second, 2 * time.Second
)

// refreshes reports whether to wait for pods' volumes, which are measured minutes apart, to be measured
// anew before a pod is chosen for a disk: not long, and at most a quarter of the time in which the disk
// would be full.
func (m *Manager) refreshes(s statsapi.Summary, r Readings, v verdict, now time.Time) bool {
	signal := v.relieve.Signal
	if !signal.OnDisk() {
		return false
	}
	wait := refreshing
	if left := m.state.lasts(signal, r, now); left < horizon {
		wait = min(wait, left/4)
	}
	order, _ := m.cfg.rank(s, signal, layoutOf(s))
	first := order[:min(len(order), most)]
	if now.Sub(m.asked) >= period {
		old := measuredBefore(first, now.Add(-recent))
		if len(old) == 0 {
			return false
		}
		m.asked, m.coming = now, sets.New(m.cfg.Anew(old)...)
	}
	return now.Sub(m.asked) < wait && m.coming.HasAny(measuredBefore(first, m.asked.Add(-recent))...)
}

// measuredBefore returns the pods with a volume of their own that was last measured before that.
func measuredBefore(all []Candidate, at time.Time) (out []types.UID) {
	for _, c := range all {
		if c.Stats != nil && slices.ContainsFunc(c.Stats.VolumeStats, func(v statsapi.VolumeStats) bool {
			return v.PVCRef == nil && v.Time.Time.Before(at)
		}) {
			out = append(out, c.Pod.UID)
		}
	}
	return out
}

// rank orders the pods that may be evicted for the signal; spared is how many are critical.
func (p PodFacts) rank(s statsapi.Summary, of Signal, l layout) (order []Candidate, spared int) {
	used, pods := byUID(s), p.Pods()
	all := make([]Candidate, len(pods))
	for i, pod := range pods {
		all[i] = Candidate{pod, used[pod.UID], p.Exclusive(pod.UID)}
	}
	order = rank(all, of, l)
	return order, len(all) - len(order)
}
