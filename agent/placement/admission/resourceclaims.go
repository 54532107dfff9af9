package admission

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// Claims knows the resource claims of pods. Only Look and Prepare block.
type Claims interface {
	// Begin starts to follow the pod's claims, until Release. When Uses answers otherwise, the queue
	// must be poked.
	Begin(pod *v1.Pod)
	// Uses returns the claims as far as they are known, and what keeps them from being used.
	Uses(pod *v1.Pod) ([]claim.Use, claim.Lack)
	// Look returns when the API server has told of the claims, or when it does not answer.
	Look(ctx context.Context, pod *v1.Pod)
	// Prepare has the drivers prepare the claims, if these are among them; else the error is
	// claim.ErrReplaced. It calls no driver that has done so for the pod.
	Prepare(ctx context.Context, pod *v1.Pod, claims []types.UID) error
	// Release says that the pod uses its claims no longer.
	Release(pod types.UID)
}

// noClaims is the Claims of a node whose pods have none.
type noClaims struct{}

func (noClaims) Begin(*v1.Pod)                          {}
func (noClaims) Uses(*v1.Pod) ([]claim.Use, claim.Lack) { return nil, claim.Lack{} }
func (noClaims) Look(context.Context, *v1.Pod)          {}
func (noClaims) Release(types.UID)                      {}

func (noClaims) Prepare(context.Context, *v1.Pod, []types.UID) error { return nil }

// claimsOf returns a function that returns a pod's claims as they are known when it is called.
func claimsOf(all Claims) func(*v1.Pod) allocation.PodClaims {
	return func(pod *v1.Pod) (out allocation.PodClaims) {
		if claim.Any(pod) {
			out.Uses, out.Lack = all.Uses(pod)
		}
		return out
	}
}

// prepare has the drivers prepare the pod's claims, for which it was given what is reserved.
func (c *calls) prepare(ctx context.Context, pod *v1.Pod, reserved allocation.Pod) error {
	if !claim.Any(pod) {
		return nil
	}
	if err := c.cfg.Claims.Prepare(ctx, pod, reserved.ClaimUIDs()); err != nil {
		return &record.PrepareError{Err: err}
	}
	return nil
}
