package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Reporter reports the outcomes of pods, each once, and keeps their explanations. One goroutine owns it;
// others may call Explained.
type Reporter struct {
	tell    func(Result)
	plugins any // may know their endpoints and deadlines
	wait    time.Duration
	said    map[types.UID]*reported

	explanations explanations
}

// New returns a Reporter that reports to tell. Pods wait that long; 0: they are rejected instead. If the
// plugins know their endpoints and how long they may take to answer, messages say so.
func New(tell func(Result), plugins any, wait time.Duration) *Reporter {
	return &Reporter{tell: tell, plugins: plugins, wait: wait, said: map[types.UID]*reported{}}
}

// reasonUnprepared is the kubelet's reason of the event about a claim that a driver did not prepare.
const reasonUnprepared = "FailedPrepareDynamicResources"

// reported holds what was said of a pod, and what there is to say with the next outcome.
type reported struct {
	last Result // what was reported last
	// basis explains the last decision, until that is final.
	basis *decide.Basis
	// tried is the last plan, until it is reported.
	tried *Tried
	// blamed names the call that a rejection comes from.
	blamed string
	// causes are the messages that were news while the pod waited for a device plugin; bounded.
	causes []string
}

// mostCauses bounds reported.causes: a plugin may fail with other words each time.
const mostCauses = 8

// newCause reports whether the pod waits for a device plugin for a cause that was not reported before.
func (t *reported) newCause(r Result) bool {
	if r.Outcome != decide.Wait || r.Reason != decide.ReasonWaitPlugin ||
		len(t.causes) == mostCauses || slices.Contains(t.causes, r.Message) {
		return false
	}
	t.causes = append(t.causes, r.Message)
	return true
}

// of returns what was said of the pod.
func (r *Reporter) of(e *line.Entry) *reported {
	state := r.said[e.Pod.UID]
	if state == nil {
		state = &reported{}
		r.said[e.Pod.UID] = state
	}
	return state
}

// Explain takes note of what explains a decision on the pod; final: the decision counts.
func (r *Reporter) Explain(e *line.Entry, v line.Verdict, final bool) {
	state := r.of(e)
	state.basis = v.Basis
	switch {
	case !final:
		state.tried = nil
	case v.Kind != decide.Checked:
		state.tried = &Tried{Plan: v.Case.Plan, Err: v.Case.Err, Took: v.Took}
	}
}

// Say reports an outcome that differs from the last one, and returns whether it does.
func (r *Reporter) Say(e *line.Entry, what record.Say) bool {
	state := r.of(e)
	if what.Unplanned {
		state.tried = nil
	}
	last := state.last
	if what.Outcome == last.Outcome && what.Reason == last.Reason && what.Message == last.Message {
		return false
	}
	next := Result{Pod: e.Pod, Outcome: what.Outcome, Reason: what.Reason, Message: what.Message}
	next.Reworded = !state.newCause(next) && next.Outcome == last.Outcome && next.Reason == last.Reason
	switch {
	case next.Reason == decide.ReasonWaitObjects:
		next.Lack = e.Inquiry.Lack
	case what.Unprepared:
		next.Lack = decide.Lack{Reason: reasonUnprepared, Why: next.Message}
	}
	state.last = next
	explained := r.explanations.put(next, state.basis, what.Ignored)
	if next.Outcome != decide.Admit {
		next.Explained = explained().Short()
	}
	if log := klog.V(4); log.Enabled() {
		for _, m := range explained().Merges {
			log.InfoS("Merged topology hints", "pod", klog.KObj(e.Pod), "container", m.Container,
				"offers", m.Offers, "merged", m.Merged, "admit", m.Admitted)
		}
	}
	if next.Outcome == decide.Reject && state.blamed != "" {
		next.Explained = strings.TrimSuffix(state.blamed+"; "+next.Explained, "; ")
	}
	if next.Outcome != decide.Wait {
		next.Tried, state.tried, state.basis = state.tried, nil, nil
	}
	r.tell(next)
	return true
}

// Reject reports a rejection.
func (r *Reporter) Reject(e *line.Entry, why *allocation.Rejection) {
	state := r.of(e)
	if state.tried != nil {
		state.tried.Err = why
	}
	state.blamed = r.blame(why)
	r.Say(e, record.Say{Outcome: decide.Reject, Reason: why.Reason, Message: why.Message})
}

// Forget reports that nothing of the pod, whose record may be gone, is held any more.
func (r *Reporter) Forget(pod *v1.Pod) {
	r.explanations.drop(pod.UID)
	delete(r.said, pod.UID)
	r.tell(Result{Pod: pod, Outcome: decide.Released})
}

// Pods returns the pods of which something is kept, in no order.
func (r *Reporter) Pods() []types.UID { return slices.Collect(maps.Keys(r.said)) }
