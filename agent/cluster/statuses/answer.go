package statuses

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
)

// Outcome says what came of a request about a pod.
type Outcome struct {
	// Took is how long the API server lacked the present status, zero if the request did not change
	// it.
	Took time.Duration
	// Refused names what the API server refuses of the pod's status, if that is news.
	Refused string
	// Accepted: the API server takes the status as a whole, other than before.
	Accepted bool
}

// Answered handles the API server's answer to a request about a pod here: got is the pod that the
// API server has under that name, if it said so. again is the reason for a retry.
func (b *Planner) Answered(uid types.UID, q Request, got *v1.Pod, err error, now time.Time) (
	out Outcome, again error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, p := b.remotes[q.Pod.UID], b.pods[uid]
	if r == nil { // it was delivered that the pod is gone
		return out, nil
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
		if p != nil && q.Verb == requests.Patch && p.version == q.own {
			out = p.written(now)
		}
	case apierrors.IsConflict(err): // another version, or another pod
		r.Doubt(now)
		if r.contested { // no race with a client that writes endlessly
			return out, err
		}
		r.contested = true
	case q.Verb == requests.Patch && p != nil && p.truncation.more(err, q.Status):
		if text := p.truncation.String(); p.refusal.Begins(text) {
			out.Refused = text
		}
	case requests.MayHaveTakenEffect(err):
		r.Doubt(now)
		return out, err
	default:
		return out, err
	}
	return out, nil
}

// written notes that the API server has the present status.
func (p *local) written(now time.Time) (out Outcome) {
	if !p.since.IsZero() {
		out.Took, p.since = max(1, now.Sub(p.since)), time.Time{}
	}
	if p.truncation.String() == "" {
		out.Accepted = p.refusal.Changes("")
	}
	return out
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
