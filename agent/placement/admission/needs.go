package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
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
