package line

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// walkHasClaims reports whether pods of the walk use resource claims: in every other walk, or as
// NUMALET_STEPS_CLAIMS says.
func walkHasClaims(seed uint64) bool {
	if text := os.Getenv("NUMALET_STEPS_CLAIMS"); text != "" {
		return text != "0"
	}
	return seed%2 == 1
}

// follow has the line know the claims of pods. Each pod with some uses one of three, which others use too.
func (w *walk) follow() {
	w.ClaimsOf = func(p *v1.Pod) (out allocation.PodClaims) {
		if !claim.Any(p) {
			return out
		}
		if out.Lack = w.claimLacks[p.UID]; out.Lack != (claim.Lack{}) {
			return out
		}
		name := fmt.Sprint("claim-", len(p.Name)%3)
		out.Uses = []claim.Use{{
			Pod: "gpu", Claim: dra.Claim{Namespace: p.Namespace, Name: name, UID: types.UID(name)},
			Devices: []claim.Device{{Request: "one", Driver: "driver.example.com", Pool: "pool", Name: name}},
		}}
		return out
	}
}

// claimChanges has a claim of a pod be no good, or good again.
func (w *walk) claimChanges() {
	uid := w.one()
	switch w.r.IntN(3) {
	case 0:
		w.claimLacks[uid] = claim.Lack{Reason: claim.ReasonWaitClaim, Why: "it is not allocated"}
	case 1:
		w.claimLacks[uid] = claim.Lack{Reason: claim.ReasonWaitDriver, Why: "its driver is not registered"}
	default:
		delete(w.claimLacks, uid)
	}
	w.plays("poke %s: %s", uid, w.claimLacks[uid].Reason)
}

// checkClaims checks that an admitted pod has what it uses.
func (w *walk) checkClaims(e *Entry) {
	if claim.Any(e.Pod) && e.State == record.Admitted && !e.Runs && len(e.Has.Pod.ClaimUIDs()) != 1 {
		w.t.Errorf("%s is admitted with claims %v", e.Pod.UID, e.Has.Pod.ClaimUIDs())
	}
}
