package line

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// words say what takes so long that the time of the pod's state is over; "": nothing.
func (l *Line) words(e *Entry) (cause decide.Cause, words string) {
	switch {
	case e.State.UnderWay():
		if words = l.unprepared(e); words != "" {
			return decide.ForDriver, words
		}
		return decide.ForPlugin, l.unanswered(e)
	case e.State == record.PendingRelease:
		return decide.ForPlugin, pending(l.Stored.PendingReleases, e.Has.Pod)
	case e.State == record.Behind:
		return l.inLine(e, l.Find(e.After))
	}
	return decide.Nothing, ""
}

// naming returns the message of a pod that waits, with the pods that are gone and hold some of its
// claim until their release is recorded.
func (l *Line) naming(d decide.Decision) string {
	if d.Cause != decide.ForResources {
		return d.Message
	}
	var names []string
	for _, o := range l.Order {
		if !o.State.GoesNow() {
			continue
		}
		held, _ := l.Ledger.Get(o.Pod.UID)
		if d.Claim.IsEmpty() || held.Assigned.Overlaps(allocation.HoldingsOf(d.Claim)) {
			names = append(names, klog.KObj(o.Pod).String())
		}
	}
	message := d.Message
	if len(names) > 0 {
		message += "; being released: " + strings.Join(names[:min(len(names), 3)], ", ")
	}
	if pending := pending(l.Stored.PendingReleases, d.Claim); pending != "" {
		message += "; " + pending
	}
	return message
}

// unanswered says that a plugin takes its time to answer; "": nothing new. The failure that a call
// is tried again for was told. Where pods do not wait nothing is said: like the kubelet's, such a pod
// is pending until Allocate returns.
func (l *Line) unanswered(e *Entry) string {
	if l.Wait <= 0 || e.Tries.Retries > 0 || e.Runs {
		return ""
	}
	rpc, resources, deadline := "Allocate", e.Unanswered(), l.AllocateDeadline
	switch e.State {
	case record.Asking:
		rpc, deadline = "GetPreferredAllocation", l.PreferredDeadline
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
	if deadline > 0 {
		message += fmt.Sprintf("; it has %s for that", deadline)
	}
	return message
}

// inLine says that the line in which the pod stands does not move; "": nothing.
func (l *Line) inLine(e, after *Entry) (cause decide.Cause, words string) {
	switch {
	case l.Wait <= 0 || e.Runs || after == nil || after.IsPrompt():
		return decide.Nothing, ""
	case after.State == record.Inquiring:
		return decide.ForObjects, fmt.Sprintf("the API server has not said yet whether %s, which "+
			"comes before it, could start", klog.KObj(after.Pod))
	}
	return decide.ForPlugin, fmt.Sprintf("a device plugin has not said yet which devices it prefers for %s, which "+
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
func (l *Line) unprepared(e *Entry) string {
	if l.Wait <= 0 || e.Tries.Retries > 0 || e.Runs || len(e.Unanswered()) > 0 {
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
