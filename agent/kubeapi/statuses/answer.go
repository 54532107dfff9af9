package statuses

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/requests"
)

// Answered handles the API server's answer to a request about a pod here: got is the pod that the
// API server has under that name, if it said so. took is how long the API server lacked the present
// status, zero if the request did not change it. again is the reason for a retry.
func (b *Planner) Answered(uid types.UID, q Request, got *v1.Pod, err error, now time.Time) (
	took time.Duration, again error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, p := b.remotes[q.Pod.UID], b.pods[uid]
	if r == nil { // it was delivered that the pod is gone
		return 0, nil
	}
	notThere := apierrors.IsNotFound(err) ||
		err == nil && (q.Verb == requests.Delete || got.UID != q.Pod.UID)
	switch {
	case notThere && q.Pod != r.Last(): // delivered since: finalizers may keep it
		r.Doubt(now)
	case notThere:
		r.Lose()
	case err == nil:
		r.answered(q, got, now)
		if p != nil && q.Verb == requests.Patch && p.version == q.own && !p.since.IsZero() {
			took, p.since = max(1, now.Sub(p.since)), time.Time{}
		}
	case apierrors.IsConflict(err): // another version, or another pod
		r.Doubt(now)
		if r.contested { // no race with a client that writes endlessly
			return 0, err
		}
		r.contested = true
	case q.Verb == requests.Patch && p != nil && p.truncation.more(err):
	case requests.MayHaveTakenEffect(err):
		r.Doubt(now)
		return 0, err
	default:
		return 0, err
	}
	return took, nil
}

// answered updates the remote pod from an answer, which holds whatever was delivered before the
// request. If a newer version was delivered while the answer was on its way, the API server is
// asked again. A written version is not older than versions delivered since.
func (r *remote) answered(q Request, got *v1.Pod, now time.Time) {
	older := kubeapi.Older(got.ResourceVersion, r.Last().ResourceVersion)
	if q.Verb == requests.Patch {
		r.sent, r.got, r.contested = &q.Status, &got.Status, false
		r.repeats.wrote(q.own, now)
		if older {
			return
		}
	}
	if q.Pod != r.Last() && older {
		r.Doubt(now)
		return
	}
	r.Take(got)
}
