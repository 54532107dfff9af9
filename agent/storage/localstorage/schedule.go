package localstorage

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// soonest is the least time between two measurements of a pod's volumes.
	soonest = 10 * time.Second
	// A measurement is not repeated before rests times as long has passed as it took, or mostPeriods.
	rests, mostPeriods = 20, 5
	// cheap is work that may be repeated at once: the kernel counted. quick may be repeated at once if a
	// caller of Anew asks: in a hurry it takes little longer. Slower work rests restsAsked times as long.
	// A request counts no longer than patience.
	cheap, quick, restsAsked, patience = time.Millisecond, time.Second, 5, 10 * time.Second
)

// history holds what is known of a pod's volumes, and how it was found.
type history struct {
	last   []Volume
	at     time.Time // when it was measured; zero: never
	worked time.Duration
	grown  uint64 // the disk's growth by then
	// rate is by how many bytes a second the local volumes grew between the last two measurements;
	// since says that there were two.
	rate      float64
	since     bool
	same      bool // nothing changed between the last two
	wrong     complaint.Complaint[string]
	measuring bool       // the pod is being measured
	wrote     held.Wrote // by the pod's processes when that began
	// anew is when Anew last asked for a measurement; zero: not since the last one began.
	anew time.Time
}

// wanted reports whether a caller of Anew waits for the pod to be measured.
func (h history) wanted(now time.Time) bool { return !h.anew.IsZero() && now.Sub(h.anew) < patience }

// soon reports whether the pod may be measured at once.
func (h history) soon() bool { return h.worked <= quick }

// again reports whether the pod may be measured at once, or has rested for a while.
func (h history) again(now time.Time) bool {
	return h.soon() || now.Sub(h.at) >= restsAsked*h.worked
}

// next returns the history with another measurement.
func (h history) next(all []Volume, now time.Time, worked time.Duration, grown uint64) history {
	out := history{last: all, at: now, worked: worked, grown: grown, wrong: h.wrong,
		since: !h.at.IsZero(), wrote: h.wrote}
	if !out.since {
		return out
	}
	out.same = slices.EqualFunc(h.last, all, func(a, b Volume) bool {
		return a.Name == b.Name && a.Used == b.Used
	})
	was, is, took := localBytes(h.last), localBytes(all), now.Sub(h.at).Seconds()
	if is > was && took > 0 {
		out.rate = float64(is-was) / took
	}
	return out
}

func localBytes(all []Volume) (n uint64) {
	for _, v := range all {
		if v.Local {
			n += v.Used.Bytes
		}
	}
	return n
}

// moment holds what due needs besides the pods: the time, the disk and the period.
type moment struct {
	now    time.Time
	disk   disk
	period time.Duration
}

// due returns the pods that are to be measured now, those that wait longest first, and of those that are
// due at once the ones first that took least.
func (m moment) due(pods []*v1.Pod, known map[types.UID]history) []*v1.Pod {
	type candidate struct {
		pod    *v1.Pod
		at     time.Time
		worked time.Duration
	}
	var all []candidate
	for _, pod := range pods {
		h := known[pod.UID]
		if at := m.dueAt(pod, h); !h.measuring && len(pod.Spec.Volumes) > 0 && !at.After(m.now) {
			all = append(all, candidate{pod, at, h.worked})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.worked, b.worked))
	})
	out := make([]*v1.Pod, len(all))
	for i, t := range all {
		out[i] = t.pod
	}
	return out
}

// dueAt returns when the pod is to be measured again: every two periods, and every four while
// nothing changes. A pod that may exceed a limit, as the disk grew by half of what is left to the
// pod, is measured after half a period, and one that does grow before it can reach the limit. A pod for
// which Anew was called is due at once, if measuring it is quick or it has rested.
func (m moment) dueAt(pod *v1.Pod, h history) time.Time {
	if h.at.IsZero() || h.wanted(m.now) && h.again(m.now) {
		return time.Time{}
	}
	wait := 2 * m.period
	if h.same {
		wait *= 2
	}
	grown := m.disk.grown - min(h.grown, m.disk.grown)
	left, limited := leftOf(pod, h.last)
	switch {
	case !limited && grown > m.disk.size/100:
		wait = min(wait, m.period)
	case limited && (!h.since || grown > left/2):
		wait = min(wait, m.period/2)
	}
	if limited && h.rate > 0 {
		half := float64(left) / h.rate / 2 // of the seconds until the limit is reached
		wait = time.Duration(min(half, wait.Seconds()) * float64(time.Second))
	}
	if limited && h.worked < cheap {
		wait = soonest
	}
	return h.at.Add(max(wait, soonest, min(rests*h.worked, mostPeriods*m.period)))
}

// leftOf returns by how many bytes the pod's volumes may grow before a limit is exceeded; false: no
// limit applies, or one is exceeded already.
func leftOf(pod *v1.Pod, volumes []Volume) (left uint64, limited bool) {
	if podspec.IsCritical(pod) {
		return 0, false
	}
	bound := func(limit int64, used uint64) {
		if limit > 0 && used <= uint64(limit) && (!limited || uint64(limit)-used < left) {
			left, limited = uint64(limit)-used, true
		}
	}
	limits := limitsOf(pod, false)
	for _, v := range volumes {
		if size, has := limits.volumes[v.Name]; has {
			bound(size.Value(), v.Used.Bytes)
		}
	}
	if limits.pod != nil {
		bound(limits.pod.Value(), localBytes(volumes))
	}
	return left, limited
}
