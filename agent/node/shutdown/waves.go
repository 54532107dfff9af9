package shutdown

import (
	"cmp"
	"slices"
	"sort"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology/podspec"
)

// longest bounds the time of a wave: the API accepts any number of seconds.
const longest = 30 * 24 * time.Hour

// Wave is a group of pods that end together: those of its priority and above, up to the next
// wave's. The first wave also has those below its priority.
type Wave struct {
	Priority int32
	// Grace is how long the pods have to end, and how long the next wave waits for them at most.
	Grace time.Duration
}

// Waves returns the waves of a configuration in their order; nil: pods do not end in order.
func Waves(k *kubeletconfig.KubeletConfiguration) []Wave {
	var waves []Wave
	for _, one := range k.ShutdownGracePeriodByPodPriority {
		seconds := min(one.ShutdownGracePeriodSeconds, int64(longest/time.Second))
		waves = append(waves, Wave{one.Priority, time.Duration(seconds) * time.Second})
	}
	if total := k.ShutdownGracePeriod.Duration; len(waves) == 0 && total > 0 {
		critical := k.ShutdownGracePeriodCriticalPods.Duration
		waves = []Wave{
			{0, min(total-critical, longest)},
			{podspec.CriticalPriority, min(critical, longest)},
		}
	}
	slices.SortStableFunc(waves, func(a, b Wave) int { return cmp.Compare(a.Priority, b.Priority) })
	return waves
}

// total returns the time of all waves.
func total(waves []Wave) (sum time.Duration) {
	for _, w := range waves {
		sum = min(sum+w.Grace, longest)
	}
	return sum
}

// waveOf returns the index of the wave of pods with a priority.
func waveOf(waves []Wave, priority int32) int {
	at := sort.Search(len(waves), func(i int) bool { return waves[i].Priority >= priority })
	switch {
	case at == len(waves):
		return at - 1
	case at > 0 && waves[at].Priority > priority:
		return at - 1
	}
	return at
}
