// Package requests sends requests to the API server about things with a key, such as pods: one at a
// time for each key, several keys at once, and again after a pause if a request failed.
package requests

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

const (
	// parallel is the number of concurrent requests.
	parallel = 8
	// Deadline bounds the time of one request. A hung request delays its own key, and others no
	// longer than this, even if all concurrent requests hang.
	Deadline = 10 * time.Second
	// firstRetry is the first pause after a failed request. Pauses double up to a bound: for an API
	// server that cannot be reached, which is asked soon when it is back; for one that answers with
	// an error; and if something is missing there, such as a namespace.
	firstRetry   = 200 * time.Millisecond
	unreachable  = 10 * time.Second
	answersSo    = time.Minute
	missingThere = 5 * time.Minute
	// jitter is the greatest part by which a pause is lengthened, so that not all ask at once.
	jitter = 0.5
	// LongestPause bounds the pause that an API server may ask for.
	LongestPause = time.Minute
)

// Verb says what a request does.
type Verb string

// The verbs. None means that there is nothing to request.
const (
	None   Verb = ""
	Get    Verb = "get"
	Create Verb = "create"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Next sends the next request about a key, if one is due, and returns its verb, or None. again is the
// time at which a request will be due without an event; zero: none. After an error Next is called
// again after a pause, which grows with each failure of that verb and key; the API server may
// lengthen it.
type Next[K comparable] func(ctx context.Context, key K) (made Verb, again time.Time, err error)

// MayHaveTakenEffect reports whether a failed request may have been carried out: its answer was
// lost, or the API server does not know.
func MayHaveTakenEffect(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// Queue holds the keys of things that may need a request.
type Queue[K comparable] struct {
	what string
	next Next[K]
	keys workqueue.TypedDelayingInterface[K]

	mu sync.Mutex // guards failed
	// failed counts the failures of each kind of request since its last success. Another verb's
	// success says nothing: an API server whose disk is full answers reads.
	failed map[K]map[Verb]int
}

// New returns a queue; what names its requests in the log.
func New[K comparable](what string, next Next[K]) *Queue[K] {
	return &Queue[K]{what: what, next: next, keys: workqueue.NewTypedDelayingQueue[K](),
		failed: map[K]map[Verb]int{}}
}

// Add has Next called for a key. It never blocks; several calls before that count as one.
func (q *Queue[K]) Add(key K) { q.keys.Add(key) }

// Run sends requests until ctx ends and all of them have ended.
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

// work handles one key; false: the queue is shut down.
func (q *Queue[K]) work(ctx context.Context) bool {
	key, over := q.keys.Get()
	if over {
		return false
	}
	defer q.keys.Done(key)
	within, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	made, again, err := q.next(within, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		q.pause(ctx, key, made, err)
	case made == None:
		q.finished(key)
	default:
		q.succeeded(key, made)
		q.keys.Add(key)
	}
	if !again.IsZero() {
		q.keys.AddAfter(key, time.Until(again))
	}
	return true
}

// finished records that there is nothing to request about a key.
func (q *Queue[K]) finished(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed, key)
}

func (q *Queue[K]) succeeded(key K, verb Verb) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed[key], verb)
}

// again counts a failure, and returns the number of earlier ones.
func (q *Queue[K]) again(key K, verb Verb) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed[key] == nil {
		q.failed[key] = map[Verb]int{}
	}
	q.failed[key][verb]++
	return q.failed[key][verb] - 1
}

// pause has Next called again, not before the API server allows.
func (q *Queue[K]) pause(ctx context.Context, key K, verb Verb, err error) {
	before := q.again(key, verb)
	log := klog.FromContext(ctx).V(2)
	if before == 0 {
		log = klog.FromContext(ctx)
	}
	log.Info("The API server did not take a request, trying again", "request", q.what, "verb", verb,
		"about", key, "err", Short(err))
	pause := await.Pauses{First: firstRetry, Last: longestPause(err)}.After(before)
	if seconds, says := apierrors.SuggestsClientDelay(err); says && seconds > 0 {
		pause = max(pause, min(time.Duration(seconds)*time.Second, LongestPause))
	}
	q.keys.AddAfter(key, wait.Jitter(pause, jitter))
}

// longestPause returns the longest pause after failures such as this one.
func longestPause(err error) time.Duration {
	var answer apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err):
		return missingThere
	case errors.As(err, &answer):
		return answersSo
	default:
		return unreachable
	}
}
