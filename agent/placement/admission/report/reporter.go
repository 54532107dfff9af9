package report

import (
	"errors"
	"maps"
	"slices"
	"strings"

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
	plugins any // may know their endpoints
	said    map[types.UID]*reported

	explanations explanations
}

// New returns a Reporter that reports to tell. If the plugins know their endpoints, messages say so.
func New(tell func(Result), plugins any) *Reporter {
	return &Reporter{tell: tell, plugins: plugins, said: map[types.UID]*reported{}}
}

// reported holds what was said of a pod, and what there is to say with the next outcome.
type reported struct {
	last Result // what was reported last
	// resize is the last result of a resize.
	resize Result
	// basis explains the last decision, until that is final.
	basis *decide.Basis
	// tried is the last plan, until it is reported.
	tried *Tried
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
func (r *Reporter) of(pod *v1.Pod) *reported {
	state := r.said[pod.UID]
	if state == nil {
		state = &reported{}
		r.said[pod.UID] = state
	}
	return state
}

// Explain keeps what explains a decision on the pod.
func (r *Reporter) Explain(pod *v1.Pod, f line.Explain) {
	state := r.of(pod)
	state.basis = f.Basis
	switch {
	case !f.Final:
		state.tried = nil
	case f.Kind != decide.Checked:
		state.tried = &Tried{Plan: f.Case.Plan, Err: f.Case.Err, Took: f.Took}
	}
}

// Say reports an outcome that differs from the last one.
func (r *Reporter) Say(pod *v1.Pod, what record.Say) { r.say(pod, what, nil) }

// say reports an outcome; why is set for a rejection.
func (r *Reporter) say(pod *v1.Pod, what record.Say, why *allocation.Rejection) {
	state := r.of(pod)
	if what.Unplanned {
		state.tried = nil
	}
	last := state.last
	if what.Outcome == last.Outcome && what.Reason == last.Reason && what.Message == last.Message {
		return
	}
	next := Result{Pod: pod, Outcome: what.Outcome, Reason: what.Reason, Message: what.Message, Lack: what.Lack}
	next.Reworded = !state.newCause(next) && next.Outcome == last.Outcome && next.Reason == last.Reason
	state.last = next
	explained := r.explanations.put(next, state.basis, what.Ignored)
	if next.Outcome != decide.Admit {
		next.Explained = explained().Short()
	}
	if log := klog.V(4); log.Enabled() {
		for _, m := range explained().Merges {
			log.InfoS("Merged topology hints", "pod", klog.KObj(pod), "container", m.Container,
				"offers", m.Offers, "merged", m.Merged, "admit", m.Admitted)
		}
	}
	if why != nil {
		next.Short = why.Short
		if blamed := r.blame(why); blamed != "" {
			next.Explained = strings.TrimSuffix(blamed+"; "+next.Explained, "; ")
		}
	}
	if next.Outcome != decide.Wait {
		next.Tried, state.tried, state.basis = state.tried, nil, nil
	}
	r.tell(next)
}

// Resize reports what became of a resize.
func (r *Reporter) Resize(f record.SayResize) {
	state := r.of(f.Pod)
	next := Result{Pod: f.Pod, Outcome: decide.Resized, Reason: f.Reason, Message: f.Message, Rule: f.Rule, Explained: f.Lack,
		Trigger: f.Trigger}
	if f.Reason != "" {
		next.Outcome = decide.NotResized
	}
	last := state.resize
	same := last.Outcome == next.Outcome && last.Pod.Generation == next.Pod.Generation
	if same && last.Reason == next.Reason && last.Message == next.Message {
		return
	}
	next.Reworded = same && last.Reason == next.Reason
	if state.resize = next; f.Basis != nil {
		r.explanations.put(next, f.Basis, nil)
	}
	r.tell(next)
}

// Reject reports a rejection.
func (r *Reporter) Reject(pod *v1.Pod, why *allocation.Rejection) {
	state := r.of(pod)
	if state.tried != nil {
		state.tried.Err = why
	}
	r.say(pod, record.Say{Outcome: decide.Reject, Reason: why.Reason, Message: why.Message}, why)
}

// Forget reports that nothing of the pod, whose record may be gone, is held any more.
func (r *Reporter) Forget(pod *v1.Pod) {
	r.explanations.drop(pod.UID)
	delete(r.said, pod.UID)
	r.tell(Result{Pod: pod, Outcome: decide.Released})
}

// Pods returns the pods of which something is kept, in no order.
func (r *Reporter) Pods() []types.UID { return slices.Collect(maps.Keys(r.said)) }

// blame names the call that a rejection comes from, which the kubelet's words leave out; "": none.
func (r *Reporter) blame(why *allocation.Rejection) string {
	call, ok := errors.AsType[*record.CallError](why.Err)
	if !ok {
		return ""
	}
	text := "the call was Allocate of the device plugin of " + call.Resource
	if p, ok := r.plugins.(interface{ Endpoint(resource string) string }); ok {
		text += " on " + p.Endpoint(call.Resource)
	}
	return text
}
