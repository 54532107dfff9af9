// Package requests makes requests to the API server about things that have a key, such as pods:
// one at a time about each, some about different ones at once, and again after a while where one
// has failed.
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
	// parallel is how many requests there are at once.
	parallel = 8
	// Deadline is how long one request may take: a hung one holds up its own thing, and the others
	// no longer than this even if all that may be made at once hang.
	Deadline = 10 * time.Second
	// firstRetry is the least time before a request is made again that has failed, and each time it
	// is twice as long, up to a bound: of an API server that cannot be reached, which is to be asked
	// soon when it is back; of one that answers so; and of what is missing there, such as a namespace.
	firstRetry   = 200 * time.Millisecond
	unreachable  = 10 * time.Second
	answersSo    = time.Minute
	missingThere = 5 * time.Minute
	// jitter is by which part of it a pause is longer at most, so that not all ask at once.
	jitter = 0.5
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

// Next makes the next request about a thing, if one is due, and says which; None: none was. again: when
// one will be although nothing happens; zero: not. An error has Next called again after a while, which
// grows with each failure of that verb about that thing, and which the API server may lengthen.
type Next[K comparable] func(ctx context.Context, key K) (made Verb, again time.Time, err error)

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
	keys workqueue.TypedDelayingInterface[K]

	mu sync.Mutex // guards failed
	// failed is how often each request has failed since it last succeeded. That others about the same
	// thing succeed says nothing: an API server whose disk is full answers reads.
	failed map[K]map[Verb]int
}

// New returns a queue; what it requests is for the log.
func New[K comparable](what string, next Next[K]) *Queue[K] {
	return &Queue[K]{what: what, next: next, keys: workqueue.NewTypedDelayingQueue[K](),
		failed: map[K]map[Verb]int{}}
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
	made, again, err := q.next(within, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		q.pause(ctx, key, made, err)
	case made == None:
		q.settled(key)
	default:
		q.succeeded(key, made)
		q.keys.Add(key)
	}
	if !again.IsZero() {
		q.keys.AddAfter(key, time.Until(again))
	}
	return true
}

// settled takes that there is nothing to request about a thing.
func (q *Queue[K]) settled(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed, key)
}

func (q *Queue[K]) succeeded(key K, verb Verb) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed[key], verb)
}

// again counts a failure, and returns how many there were before it.
func (q *Queue[K]) again(key K, verb Verb) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed[key] == nil {
		q.failed[key] = map[Verb]int{}
	}
	q.failed[key][verb]++
	return q.failed[key][verb] - 1
}

// pause has the thing looked at again, not before the API server wants that, if it wants it soon.
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
