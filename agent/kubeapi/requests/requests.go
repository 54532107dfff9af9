// Package requests makes requests to the API server about things that have a key, such as pods:
// one at a time about each, some about different ones at once, and again after a while where one
// has failed.
package requests

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// parallel is how many requests there are at once.
	parallel = 8
	// Deadline is how long one request may take: a hung one holds up its own thing, and the others
	// no longer than this even if all that may be made at once hang.
	Deadline = 10 * time.Second
	// firstRetry and lastRetry are the times between tries.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
	// LongestPause is the longest that is waited because an API server wants it.
	LongestPause = time.Minute
)

// Verb is what a request does.
type Verb string

// The verbs. None: there is nothing to request.
const (
	None   Verb = ""
	Get    Verb = "get"
	Create Verb = "create"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Next makes the next request about a thing, if one is due. done: none was. again: when one will
// be although nothing happens; zero: not. An error has Next called again after a while, which the
// API server may lengthen.
type Next[K comparable] func(ctx context.Context, key K) (done bool, again time.Time, err error)

// MayHaveTakenEffect reports whether a request that failed so may have been carried out all the
// same: its answer was lost, or the API server does not know itself.
func MayHaveTakenEffect(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// Queue has the things about which there may be something to request.
type Queue[K comparable] struct {
	what string
	next Next[K]
	keys workqueue.TypedRateLimitingInterface[K]
}

// New returns a queue; what it requests is for the log.
func New[K comparable](what string, next Next[K]) *Queue[K] {
	return &Queue[K]{what: what, next: next, keys: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, lastRetry))}
}

// Add has a thing looked at. It never blocks; of several calls before that one counts.
func (q *Queue[K]) Add(key K) { q.keys.Add(key) }

// Run makes requests until ctx ends and all that were under way have ended.
func (q *Queue[K]) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.keys.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for q.work(ctx) {
			}
		})
	}
	workers.Wait()
	return nil
}

// work looks at one thing; false: it is over.
func (q *Queue[K]) work(ctx context.Context) bool {
	key, over := q.keys.Get()
	if over {
		return false
	}
	defer q.keys.Done(key)
	within, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	done, again, err := q.next(within, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		q.failed(ctx, key, err)
	case !done:
		q.keys.Forget(key)
		q.keys.Add(key)
	default:
		q.keys.Forget(key)
	}
	if !again.IsZero() {
		q.keys.AddAfter(key, time.Until(again))
	}
	return true
}

// failed has the thing looked at again, not before the API server wants that, if it wants it soon.
func (q *Queue[K]) failed(ctx context.Context, key K, err error) {
	log := klog.FromContext(ctx).V(2)
	if q.keys.NumRequeues(key) == 0 {
		log = klog.FromContext(ctx)
	}
	log.Info("The API server did not take a request, trying again", "request", q.what, "about", key,
		"err", Short(err))
	if seconds, says := apierrors.SuggestsClientDelay(err); says && seconds > 0 {
		q.keys.AddAfter(key, min(time.Duration(seconds)*time.Second, LongestPause))
		return
	}
	q.keys.AddRateLimited(key)
}
