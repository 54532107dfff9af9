package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// preempt has a critical pod wait for others that make way for it, if the node lacks nothing else
// than what is only counted, and the pod has a place then. A pod that others were preempted for goes
// on to wait as long as it will have a place.
func (d *Decision) preempt(s *Snapshot, r *Request) {
	later := s.Later(r)
	short := later.Shortages(r.Pod)
	if d.Rejection.Short == "" && (len(short) > 0 || !r.HasPreempted) {
		return
	}
	missing, others := needOf(short), s.preemptable(r)
	victims, ok := victimsOf(missing, others)
	if !ok {
		if !r.Static { // of a static pod, which counts as critical, it is said what the node lacks
			d.unmet(missing.after(others...))
		}
		return
	}
	if len(victims) == 0 && !r.HasPreempted {
		return // those that terminate hold what is missing: it has waited for them
	}
	after := *s
	for _, uid := range victims {
		after.Ledger = after.Ledger.Without(uid)
	}
	plan, err := after.Later(r).Plan(r.Pod, r.Advice)
	if err != nil {
		return
	}
	d.Kind, d.Claim, d.Victims = Preempting, plan.Pod, victims
	d.wait(ForResources, d.Message+"; pods that make way for it hold what is missing")
}

// unmet says in the kubelet's words that not enough pods can make way.
func (d *Decision) unmet(n need) {
	var b strings.Builder
	for _, a := range n {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", a.resource, a.value)
	}
	d.Rejection = &allocation.Rejection{Reason: allocation.ReasonUnexpected, Message: "Unexpected " +
		"error while attempting to recover from admission failure: preemption: error finding a set " +
		"of pods to preempt: no set of running pods found to reclaim resources: [" + b.String() + "]"}
	d.refuse(Reject, d.Rejection.Reason, d.Rejection.Message)
}

// candidate is a pod that may have to make way.
type candidate struct {
	uid types.UID
	*allocation.Entry
}

// preemptable returns the pods that may make way for the pod of a request, in no order. Terminating
// pods make way already.
func (s *Snapshot) preemptable(r *Request) (out []candidate) {
	for uid, e := range s.Ledger.All() {
		if uid != r.In && e.Hold != allocation.Terminating && len(e.Requests) > 0 &&
			r.Rank.Preempts(e.Rank) {
			out = append(out, candidate{uid, e})
		}
	}
	return out
}

// share is so much of a resource.
type share struct {
	resource v1.ResourceName
	value    int64
}

// need lists what is still missing: amounts above zero.
type need []share

func needOf(short []nodestatus.Shortage) (out need) {
	for _, s := range short {
		out = append(out, share{s.Resource, s.Missing()})
	}
	return out
}

func (c candidate) has(name v1.ResourceName) int64 { return nodestatus.Amount(name, c.Requests[name]) }

// after returns what is missing once these pods have gone.
func (n need) after(gone ...candidate) (out need) {
	for _, a := range n {
		for _, c := range gone {
			a.value -= c.has(a.resource)
		}
		if a.value > 0 {
			out = append(out, a)
		}
	}
	return out
}

// far is how much would be missing without the pod: for each resource the square of the part that
// would, so that all count alike.
func (n need) far(c candidate) (sum float64) {
	for _, a := range n {
		if left := float64(a.value - c.has(a.resource)); left > 0 {
			sum += left / float64(a.value) * left / float64(a.value)
		}
	}
	return sum
}

// victimsOf chooses as the kubelet does: of the guaranteed pods only those that are missing when all
// others go, of the burstable ones those that are then missing when the best-effort ones go, and of
// these what is left to do. It reports whether there are enough.
func victimsOf(missing need, from []candidate) (out []types.UID, ok bool) {
	classes := map[v1.PodQOSClass][]candidate{}
	for _, c := range from {
		classes[c.Rank.QoS] = append(classes[c.Rank.QoS], c)
	}
	burstable, rest := classes[v1.PodQOSBurstable], classes[v1.PodQOSBestEffort]
	chosen, ok := nearest(missing.after(rest...).after(burstable...), classes[v1.PodQOSGuaranteed])
	for _, class := range []struct{ spared, from []candidate }{{rest, burstable}, {nil, rest}} {
		if !ok {
			return nil, false
		}
		var more []candidate
		more, ok = nearest(missing.after(chosen...).after(class.spared...), class.from)
		chosen = append(chosen, more...)
	}
	for _, c := range chosen {
		out = append(out, c.uid)
	}
	slices.Sort(out)
	return out, ok
}

// nearest takes one pod after the other until nothing is missing: each time the pod after which least
// is missing, of several the smallest. It reports whether they suffice.
func nearest(missing need, from []candidate) (out []candidate, ok bool) {
	from = slices.Clone(from)
	for len(missing) > 0 && len(from) > 0 {
		best := slices.MinFunc(from, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(missing.far(a), missing.far(b)),
				cmp.Compare(a.has(v1.ResourceMemory), b.has(v1.ResourceMemory)),
				cmp.Compare(a.has(v1.ResourceCPU), b.has(v1.ResourceCPU)),
				cmp.Compare(a.uid, b.uid))
		})
		missing, out = missing.after(best), append(out, best)
		from = slices.DeleteFunc(from, func(c candidate) bool { return c.uid == best.uid })
	}
	return out, len(missing) == 0
}
