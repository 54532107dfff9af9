package report

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// Words say what takes so long that the time of the pod's state is over; "": nothing.
func (r *Reporter) Words(e *line.Entry, of *line.Pods) (reason, words string) {
	switch {
	case e.State.UnderWay():
		if words = r.unprepared(e); words != "" {
			return claim.ReasonWaitDriver, words
		}
		return decide.ReasonWaitPlugin, r.slow(e)
	case e.State == record.PendingRelease:
		return decide.ReasonWaitPlugin, pending(of.Stored.PendingReleases, e.Has.Pod)
	case e.State == record.Behind:
		return r.inLine(e, of.Find(e.After))
	}
	return "", ""
}

// Naming returns the message of a pod that waits, with the pods that are gone and hold some of its
// claim until their release is recorded.
func Naming(p *line.Pods, d decide.Decision) string {
	if d.Reason != decide.ReasonWaitResources {
		return d.Message
	}
	var names []string
	for _, o := range p.Order {
		if !o.State.GoesNow() {
			continue
		}
		held, _ := p.Ledger.Get(o.Pod.UID)
		if d.Claim.IsEmpty() || held.Assigned.Overlaps(allocation.HoldingsOf(d.Claim)) {
			names = append(names, klog.KObj(o.Pod).String())
		}
	}
	message := d.Message
	if len(names) > 0 {
		message += "; being released: " + strings.Join(names[:min(len(names), 3)], ", ")
	}
	if pending := pending(p.Stored.PendingReleases, d.Claim); pending != "" {
		message += "; " + pending
	}
	return message
}

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

// slow says that a plugin takes its time to answer; "": nothing new. The failure that a call
// is tried again for was told. Where pods do not wait nothing is said: like the kubelet's, such a pod
// is pending until Allocate returns.
func (r *Reporter) slow(e *line.Entry) string {
	if r.wait <= 0 || e.Tries.Retries > 0 || e.Runs {
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
	if p, ok := r.plugins.(deadliner); ok {
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
func (r *Reporter) inLine(e, after *line.Entry) (reason, words string) {
	switch {
	case r.wait <= 0 || e.Runs || after == nil || after.IsPrompt():
		return "", ""
	case after.State == record.Inquiring:
		return decide.ReasonWaitObjects, fmt.Sprintf("the API server has not said yet whether %s, which "+
			"comes before it, could start", klog.KObj(after.Pod))
	}
	return decide.ReasonWaitPlugin, fmt.Sprintf("a device plugin has not said yet which devices it prefers for %s, which "+
		"comes before it", klog.KObj(after.Pod))
}

// pending names the devices of a claim of whose release plugins are still to hear; "": none.
func pending(all []allocation.PendingRelease, claim allocation.Pod) string {
	var names []string
	wanted := allocation.HoldingsOf(claim).Devices()
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

// unprepared says that drivers take their time to prepare claims; "": nothing.
func (r *Reporter) unprepared(e *line.Entry) string {
	if r.wait <= 0 || e.Tries.Retries > 0 || e.Runs || len(e.Unanswered()) > 0 {
		return ""
	}
	drivers := e.Drivers()
	if e.State != record.Allocating || len(drivers) == 0 {
		return ""
	}
	return fmt.Sprintf("no answer to NodePrepareResources yet from driver %s; it has %v for that",
		strings.Join(drivers[:min(len(drivers), 8)], ", "), prepareDeadline)
}

// prepareDeadline is the kubelet's for each call of a driver.
const prepareDeadline = 45 * time.Second
