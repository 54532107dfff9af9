package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/admission/line"
	"github.com/numalet/numalet/agent/admission/record"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/claims/claim"
)

// voice reports outcomes, each once, and keeps their explanations.
type voice struct {
	cfg *Config
	// said holds what was said of each pod; Run's goroutine owns it.
	said         map[types.UID]*reported
	repeats      record.Repeats
	explanations explanations
}

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

// newCause reports whether the pod waits for a device plugin for a cause that was not told before.
func (t *reported) newCause(r Result) bool {
	if r.Outcome != decide.Wait || r.Reason != decide.ReasonWaitPlugin ||
		len(t.causes) == mostCauses || slices.Contains(t.causes, r.Message) {
		return false
	}
	t.causes = append(t.causes, r.Message)
	return true
}

// explain takes note of a decision; final: it counts.
func (t *reported) explain(v line.Verdict, final bool) {
	t.basis = v.Basis
	switch {
	case !final:
		t.tried = nil
	case v.Kind != decide.Checked:
		t.tried = &Tried{Plan: v.Case.Plan, Err: v.Case.Err, Took: v.Took}
	}
}

// of returns what was said of the pod.
func (v *voice) of(e *line.Entry) *reported {
	t := v.said[e.Pod.UID]
	if t == nil {
		t = &reported{}
		v.said[e.Pod.UID] = t
	}
	return t
}

// say reports an outcome that differs from the last one.
func (v *voice) say(e *line.Entry, what record.Say) {
	t := v.of(e)
	if what.Unplanned {
		t.tried = nil
	}
	last := t.last
	if what.Outcome == last.Outcome && what.Reason == last.Reason && what.Message == last.Message {
		return
	}
	r := Result{Pod: e.Pod, Outcome: what.Outcome, Reason: what.Reason, Message: what.Message}
	r.Reworded = !t.newCause(r) && r.Outcome == last.Outcome && r.Reason == last.Reason
	switch {
	case r.Reason == decide.ReasonWaitObjects:
		r.Lack = e.Inquiry.Lack
	case what.Unprepared:
		r.Lack = decide.Lack{Reason: reasonUnprepared, Why: r.Message}
	}
	t.last = r
	if r.Outcome == decide.Admit {
		v.repeats.Admitted(record.OwnerOf(e.Pod))
	}
	explained := v.explanations.put(r, t.basis, what.Ignored)
	if r.Outcome != decide.Admit {
		r.Explained = explained().Short()
	}
	if log := klog.V(4); log.Enabled() {
		for _, m := range explained().Merges {
			log.InfoS("Merged topology hints", "pod", klog.KObj(e.Pod), "container", m.Container,
				"offers", m.Offers, "merged", m.Merged, "admit", m.Admitted)
		}
	}
	if r.Outcome == decide.Reject && t.blamed != "" {
		r.Explained = strings.TrimSuffix(t.blamed+"; "+r.Explained, "; ")
	}
	if r.Outcome != decide.Wait {
		r.Tried, t.tried, t.basis = t.tried, nil, nil
	}
	v.cfg.Report(r)
}

// reject reports a rejection.
func (v *voice) reject(e *line.Entry, r *allocation.Rejection) {
	v.repeats.Rejected(record.OwnerOf(e.Pod), time.Now())
	t := v.of(e)
	if t.tried != nil {
		t.tried.Err = r
	}
	t.blamed = v.blame(r)
	v.say(e, record.Say{Outcome: decide.Reject, Reason: r.Reason, Message: r.Message})
}

// forget reports that nothing of the pod is held any more.
func (v *voice) forget(e *line.Entry) {
	v.explanations.drop(e.Pod.UID)
	delete(v.said, e.Pod.UID)
	v.cfg.Report(Result{Pod: e.Pod, Outcome: decide.Released})
}

// blame names the call that a rejection comes from, which the kubelet's words leave out; "": none.
func (v *voice) blame(r *allocation.Rejection) string {
	call, ok := errors.AsType[*record.CallError](r.Err)
	if !ok {
		return ""
	}
	text := "the call was Allocate of the device plugin of " + call.Resource
	if p, ok := v.cfg.Plugins.(interface{ Endpoint(resource string) string }); ok {
		text += " on " + p.Endpoint(call.Resource)
	}
	return text
}

// slow says that a plugin takes its time to answer; "": nothing new. The failure that a call
// is tried again for was told. Where pods do not wait nothing is said: like the kubelet's, such a pod
// is pending until Allocate returns.
func (v *voice) slow(e *line.Entry) string {
	if v.cfg.Wait <= 0 || e.Tries.Retries > 0 || e.Runs {
		return ""
	}
	rpc, resources, deadline := "Allocate", e.Unanswered(), deadliner.AllocateDeadline
	switch e.State {
	case record.Asking:
		rpc, deadline = "GetPreferredAllocation", deadliner.PreferredDeadline
		resources = []string{e.Question.Resource}
	case record.Allocating:
	default:
		return ""
	}
	if len(resources) == 0 {
		return ""
	}
	message := fmt.Sprintf("no answer to %s yet from the device plugin of %s", rpc,
		strings.Join(resources, ", "))
	if p, ok := v.cfg.Plugins.(deadliner); ok {
		message += fmt.Sprintf("; it has %s for that", deadline(p))
	}
	return message
}

// deadliner is implemented by plugins that know how long they may take to answer.
type deadliner interface {
	AllocateDeadline() time.Duration
	PreferredDeadline() time.Duration
}

// inLine says that the line in which the pod stands does not move; "": nothing.
func (v *voice) inLine(e, after *line.Entry) (reason, words string) {
	switch {
	case v.cfg.Wait <= 0 || e.Runs || after == nil || after.IsPrompt():
		return "", ""
	case after.State == record.Inquiring:
		return decide.ReasonWaitObjects, fmt.Sprintf("the API server has not said yet whether %s, which "+
			"comes before it, could start", klog.KObj(after.Pod))
	}
	return decide.ReasonWaitPlugin, fmt.Sprintf("a device plugin has not said yet which devices it prefers for %s, which "+
		"comes before it", klog.KObj(after.Pod))
}

// words say what takes so long that the time of the pod's state is over; "": nothing.
func (v *voice) words(e *line.Entry, of *line.Pods) (reason, words string) {
	switch {
	case e.State.UnderWay():
		if words = v.unprepared(e); words != "" {
			return claim.ReasonWaitDriver, words
		}
		return decide.ReasonWaitPlugin, v.slow(e)
	case e.State == record.PendingRelease:
		return decide.ReasonWaitPlugin, owed(of.Stored.Owed, e.Has.Pod)
	case e.State == record.Behind:
		return v.inLine(e, of.Find(e.After))
	}
	return "", ""
}

// naming returns the message of a pod that waits, with the pods that are gone and hold some of its
// claim until their release is recorded.
func naming(p *line.Pods, d decide.Decision) string {
	if d.Reason != decide.ReasonWaitResources {
		return d.Message
	}
	var names []string
	for _, o := range p.Order {
		if !o.State.GoesNow() {
			continue
		}
		held, _ := p.Ledger.Get(o.Pod.UID)
		if d.Claim.IsEmpty() || held.Assigned.Overlaps(allocation.TakenBy(d.Claim)) {
			names = append(names, klog.KObj(o.Pod).String())
		}
	}
	message := d.Message
	if len(names) > 0 {
		message += "; being released: " + strings.Join(names[:min(len(names), 3)], ", ")
	}
	if owed := owed(p.Stored.Owed, d.Claim); owed != "" {
		message += "; " + owed
	}
	return message
}

// owed names the devices of a claim of whose release plugins are still to hear; "": none.
func owed(all []allocation.Owed, claim allocation.Pod) string {
	var names []string
	wanted := allocation.TakenBy(claim).Devices()
	for _, o := range all {
		for _, id := range o.IDs {
			if wanted[o.Resource].Has(id) {
				names = append(names, fmt.Sprintf("%s of %s, which %s/%s had", id, o.Resource,
					o.Namespace, o.Name))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "the device plugin has not answered yet that it knows of the release of " +
		strings.Join(names[:min(len(names), 3)], ", ")
}
