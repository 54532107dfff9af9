package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology/podspec"
)

// Needs knows which objects of the API server pods need to start. Only Look blocks.
type Needs interface {
	// Begin starts to follow what the pod needs, until End. When Lack's answer changes, the queue must
	// be poked.
	Begin(pod *v1.Pod)
	// Lack returns what the pod lacks, as far as known.
	Lack(pod *v1.Pod) decide.Lack
	// Look returns when all is known, or when the API server does not answer.
	Look(ctx context.Context, pod *v1.Pod)
	// End is called when none of the others is under way for the pod.
	End(pod types.UID)
}

// inquire begins to follow what a new pod needs. A pod that runs or was admitted before needs no
// question. If pods do not wait, they hold what they get while they cannot start, as under a kubelet.
func (a *admitter) inquire(r *record.Record, recorded bool) {
	if a.cfg.Needs == nil || a.cfg.Wait <= 0 || r.Runs || recorded || podspec.IsStatic(r.Pod) {
		return
	}
	h := a.cfg.Hardware()
	if (allocation.View{CPUs: h.CPUs, Memory: h.Memory}).Needs(r.Pod) {
		r.Inquiry.Begun = true
		a.cfg.Needs.Begin(r.Pod)
	}
}

// needed waits until it is known what a pod needs.
func (c *calls) needed(ctx context.Context, pod *v1.Pod, until time.Time) record.Event {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if c.cfg.Needs != nil {
		c.cfg.Needs.Look(ctx, pod)
	}
	if claim.Any(pod) {
		c.cfg.Claims.Look(ctx, pod)
	}
	return record.Looked{}
}
