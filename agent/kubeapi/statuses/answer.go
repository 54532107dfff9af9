package statuses

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/kubeapi/requests"
)

// Answered takes what the API server answered to a request about a pod here, at a time: the pod
// that it has of that name, if it said that. took is how long the API server did not have what it
// has now, zero if it was not told anything; the error is why to try again.
func (b *Book) Answered(uid types.UID, q Request, got *v1.Pod, err error, now time.Time) (
	took time.Duration, again error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, p := b.remotes[q.Pod.UID], b.pods[uid]
	if r == nil { // it was delivered that it is gone
		return 0, nil
	}
	notThere := apierrors.IsNotFound(err) ||
		err == nil && (q.Verb == requests.Delete || got.UID != q.Pod.UID)
	switch {
	case notThere && q.Pod != r.pod: // delivered since: others' finalizers may keep it there
		r.ask = now
	case notThere:
		r.gone, r.ask = true, time.Time{}
	case err == nil:
		r.answered(q, got, now)
		if p != nil && q.Verb == requests.Patch && p.version == q.own && !p.since.IsZero() {
			took, p.since = max(1, now.Sub(p.since)), time.Time{}
		}
	case apierrors.IsConflict(err): // another version, or another pod
		r.ask = now
		if r.contested { // no race with those who write without end
			return 0, err
		}
		r.contested = true
	case q.Verb == requests.Patch && p != nil && p.cut.more(err):
	case requests.MayHaveTakenEffect(err):
		r.ask = now
		return 0, err
	default:
		return 0, err
	}
	return took, nil
}

// answered takes the pod as an answer has it. What was asked for is so, whatever came before; but
// one that was delivered while the answer was on its way may be newer, and then it is asked again.
// What was written is not older than what has been delivered since.
func (r *remote) answered(q Request, got *v1.Pod, now time.Time) {
	if q.Verb == requests.Patch {
		r.sent, r.got, r.contested = &q.Status, &got.Status, false
		r.repeats.wrote(q.own, now)
		if older(got, r.pod) {
			return
		}
	}
	if q.Pod != r.pod && older(got, r.pod) {
		r.ask = now
		return
	}
	r.take(got)
}
