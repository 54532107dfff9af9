package claims

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
)

const (
	// soon is the first pause before claims are read again that a pod cannot use: the API server lets a
	// node read a claim a moment after the pod is there. The pause grows up to period, or up to longest
	// while the API server does not answer. While the claims are good it is longest.
	soon, period, longest = 100 * time.Millisecond, 2 * time.Second, 30 * time.Second
	// lookAgain is how long look waits for a claim that cannot be read yet.
	lookAgain = time.Second
	// readTimeout bounds the time of one reading of a pod's claims.
	readTimeout = 10 * time.Second
	// fresh is how long a reading of good claims counts when they are prepared.
	fresh = 10 * time.Second
	// sideBySide is how many claims of a pod are read at once.
	sideBySide = 4
)

// follower reads the claims of pods at the API server, by GET: nothing else is allowed to a node.
type follower struct {
	get      func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	optional bool // drivers may skip calls
	groups   bool // pods may use claims of their PodGroup
	node     func() *v1.Node
	changed  func()
	readers  await.Tasks

	mu   sync.Mutex // guards pods, and the readings
	pods map[types.UID]*reading
}

// reading holds what was read of the claims of a pod that waits.
type reading struct {
	pod   *v1.Pod
	known chan struct{} // closed when they were read, whatever came of it
	ready chan struct{} // closed when they were good
	again chan struct{} // capacity 1: they are to be read at once
	stop  context.CancelFunc
	found
}

// found is the outcome of a reading.
type found struct {
	uses []Use
	err  error
	at   time.Time
	// good: the pod may use all of its claims.
	good bool
}

// begin follows the claims of a pod until end. If the pod is another version than the one followed,
// they are read again at once.
func (f *follower) begin(pod *v1.Pod) {
	if !claim.Any(pod) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.pods[pod.UID]; r != nil {
		if r.pod != pod {
			r.pod = pod
			await.Wake(r.again)
		}
		return
	}
	r := &reading{pod: pod, known: make(chan struct{}), ready: make(chan struct{}),
		again: make(chan struct{}, 1)}
	r.err = fmt.Errorf("the API server has not told yet of the pod's resource claims")
	f.pods[pod.UID] = r
	r.stop = f.readers.Go(func(ctx context.Context) { f.follow(ctx, r) })
}

func (f *follower) end(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.pods[uid]; r != nil {
		r.stop()
		delete(f.pods, uid)
	}
}

// follow reads the claims until the pod waits no longer.
func (f *follower) follow(ctx context.Context, r *reading) {
	pauses := await.Pauses{First: soon, Last: longest}
	for failed := 0; ctx.Err() == nil; {
		f.put(ctx, r, f.read(ctx, f.podOf(r)))
		pause := longest
		if now := f.last(r); !now.good {
			if pause = pauses.After(failed); !isUnanswered(now.err) {
				pause = min(pause, period)
			}
			failed++
		} else {
			failed = 0
		}
		select {
		case <-ctx.Done():
		case <-r.again:
			failed = 0
		case <-time.After(pause):
		}
	}
}

func (f *follower) podOf(r *reading) *v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.pod
}

func (f *follower) last(r *reading) found {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.found
}

// put records what was read, and tells of it if it differs.
func (f *follower) put(ctx context.Context, r *reading, now found) {
	if ctx.Err() != nil {
		return
	}
	if f.replace(r, now) {
		f.changed()
	}
	closeOnce(r.known)
	if now.good {
		closeOnce(r.ready)
	}
}

// closeOnce closes a channel that only one goroutine closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// fetchError says that a claim could not be read.
type fetchError struct {
	claim string
	error
}

func (e *fetchError) Error() string {
	return fmt.Sprintf("fetch ResourceClaim %s: %v", e.claim, e.error)
}

func (e *fetchError) Unwrap() error { return e.error }

// isUnanswered reports whether the error is that the API server did not answer.
func isUnanswered(err error) bool {
	_, fetch := errors.AsType[*fetchError](err)
	return fetch && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

// isEarly reports whether the claim may be there or be readable in a moment.
func isEarly(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

func (f *follower) replace(r *reading, now found) (other bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := r.found
	r.found = now
	return was.good != now.good || fmt.Sprint(was.err) != fmt.Sprint(now.err) ||
		!reflect.DeepEqual(was.uses, now.uses)
}

// known returns what was last read of the pod's claims; false: they are not followed.
func (f *follower) known(uid types.UID) (found, bool) {
	if r := f.reading(uid); r != nil {
		return f.last(r), true
	}
	return found{}, false
}

// look waits until the pod's claims were read once, and a moment longer for one that cannot be read
// yet.
func (f *follower) look(ctx context.Context, uid types.UID) {
	r := f.reading(uid)
	if r == nil || !await.On(ctx, r.known) || !isEarly(f.last(r).err) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	await.On(ctx, r.ready)
}

// reading returns nil for a pod that is not followed.
func (f *follower) reading(uid types.UID) *reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid]
}

// othersWait reports whether a pod besides this one waits for the claim; false if r is nil.
func (f *follower) othersWait(but types.UID, r *Record) bool {
	return r != nil && slices.ContainsFunc(r.Users, func(u User) bool {
		return u.UID != but && f.reading(u.UID) != nil
	})
}

// reread has the pod's claims read at once: they are not what they were.
func (f *follower) reread(uid types.UID) {
	if r := f.reading(uid); r != nil {
		await.Wake(r.again)
	}
}

// uses returns the claims that a pod is about to use, as the API server had them lately.
func (f *follower) uses(ctx context.Context, pod *v1.Pod) ([]Use, error) {
	if now, ok := f.known(pod.UID); ok && now.good && time.Since(now.at) < fresh {
		return now.uses, nil
	}
	now := f.read(ctx, pod)
	r := f.reading(pod.UID)
	switch {
	case now.err != nil:
		f.reread(pod.UID)
	case r != nil && f.replace(r, now):
		f.changed()
	}
	return now.uses, now.err
}

// read reads the claims and checks that the pod may use them.
func (f *follower) read(ctx context.Context, pod *v1.Pod) found {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	out := found{at: time.Now()}
	refs, err := claim.Refs(pod)
	if err != nil {
		out.err = err
		return out
	}
	type answer struct {
		use Use
		err error
	}
	for _, a := range await.All(refs, sideBySide, func(ref claim.Ref) (a answer) {
		a.use, a.err = f.readOne(ctx, pod, ref)
		return a
	}) {
		if a.err != nil {
			return found{err: a.err, at: out.at}
		}
		out.uses = append(out.uses, a.use)
	}
	out.good = true
	return out
}

func (f *follower) readOne(ctx context.Context, pod *v1.Pod, ref claim.Ref) (Use, error) {
	c, err := f.get(ctx, pod.Namespace, ref.Name)
	if err != nil {
		return Use{}, &fetchError{ref.Name, err}
	}
	if err := claim.Check(pod, ref, c, f.groups); err != nil {
		return Use{}, err
	}
	if err := claim.On(f.node(), c); err != nil {
		return Use{}, err
	}
	u := Use{Use: claim.UseOf(ref, c), Skips: claim.SkipsOf(c)}
	for _, skip := range u.Skips {
		if skip != (claim.Skip{}) && !f.optional {
			return Use{}, fmt.Errorf("ResourceClaim %s: %w", c.Name, claim.ErrSkips)
		}
	}
	return u, nil
}
