package mirror

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// While the namespace of a static pod is missing or terminating, its mirror pod is retried after
// pauses that grow from the first to the longest.
const firstPause, longestPause = 10 * time.Second, 5 * time.Minute

// Request is a request to the API server about a mirror pod.
type Request struct {
	Verb requests.Verb
	// Pod is the static pod whose mirror pod should be created, or the pod to delete, which must
	// still have this UID.
	Pod *v1.Pod
}

// Planner holds the node's static pods and their mirror pods, and decides on the next request. It
// sends no requests and reads no clock. Its methods may be called from any goroutine; about one
// name only one request may be pending.
type Planner struct {
	mu    sync.Mutex                     // guards the fields below
	names map[types.NamespacedName]*line // shared by a static pod and its mirror pod
	heard bool
}

// line holds what the planner knows about a name. Empty lines are dropped.
type line struct {
	static []podstatus.Change // the last of each pod, in order of arrival; the first counts
	kubeapi.Copy[*v1.Pod]
	// past is the mirror pod that showed an earlier life of the static pod; "": none is known.
	past types.UID
	// taken is set if another pod has the name, and it is not known which.
	taken bool
	// holderUnknown is set if the API server did not say which when last asked.
	holderUnknown bool
	// homeless counts failures in a row because of the namespace; due is the time of the next try.
	homeless int
	due      time.Time
}

// NewPlanner returns an empty Planner.
func NewPlanner() *Planner { return &Planner{names: map[types.NamespacedName]*line{}} }

// Heard records that every source of pods was heard: now a mirror pod without a static pod is known
// to have none. It returns the names that may need a request.
func (b *Planner) Heard() (look []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = true
	return slices.Collect(maps.Keys(b.names))
}

// Wrote records what was written for a pod of the node. look is set if its name may need a request.
func (b *Planner) Wrote(c podstatus.Change) (name types.NamespacedName, look bool) {
	if name = podspec.Name(c.Pod); !podspec.IsStatic(c.Pod) {
		return name, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lineLocked(name)
	defer b.dropLocked(name, l)
	at := slices.IndexFunc(l.static, func(p podstatus.Change) bool { return p.Pod.UID == c.Pod.UID })
	switch {
	case c.Ends() && at >= 0:
		l.static = slices.Delete(l.static, at, at+1)
		return name, true
	case c.Ends():
		return name, false
	case at < 0:
		l.static = append(l.static, c)
		return name, true
	}
	l.static[at] = c
	has := l.Get()
	if at == 0 && c.Again && has != nil {
		l.past = has.UID
	}
	return name, has != nil && l.outlived(has)
}

// outlived reports whether a mirror pod shows an earlier life of the static pod. Its end was told and
// is not taken back: others may have acted on it.
func (l *line) outlived(has *v1.Pod) bool {
	return has.UID == l.past || Outlived(has, l.static[0])
}

// Outlived reports whether a mirror pod shows an end that is not that of the static pod, whose last
// change is given: it shows an earlier life.
func Outlived(has *v1.Pod, now podstatus.Change) bool {
	return podspec.Ended(has.Status.Phase) && !now.First && now.After.Phase != has.Status.Phase
}

func (b *Planner) lineLocked(name types.NamespacedName) *line {
	l := b.names[name]
	if l == nil {
		l = &line{}
		b.names[name] = l
	}
	return l
}

func (b *Planner) dropLocked(name types.NamespacedName, l *line) {
	_, doubt := l.Doubted(time.Time{})
	if len(l.static) == 0 && l.Get() == nil && l.Delivered() == nil && doubt.IsZero() && !l.taken {
		delete(b.names, name)
	}
}

// Saw records all pods that the API server has for the node, and returns the names that may need a
// request.
func (b *Planner) Saw(all []*v1.Pod, now time.Time) (look []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[types.NamespacedName]bool, len(all))
	for _, pod := range all {
		name := podspec.Name(pod)
		l, known := b.names[name]
		if there[name] || !known && !podspec.IsMirror(pod) {
			continue // not a pod that concerns us
		}
		there[name] = true
		if !known {
			l = b.lineLocked(name)
		}
		if l.Delivered() != pod {
			l.Deliver(pod, now)
			look = append(look, name)
		}
	}
	for name, l := range b.names {
		if l.Delivered() != nil && !there[name] {
			l.Deliver(nil, now)
			look = append(look, name)
		}
	}
	return look
}

// Next returns the next request about a name. again is the time at which there may be one without a
// further event.
func (b *Planner) Next(name types.NamespacedName, now time.Time) (r Request, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.names[name]
	if l == nil {
		return Request{}, time.Time{}
	}
	doubted, again := l.Doubted(now)
	if doubted {
		l.Believe()
		again = time.Time{}
	}
	defer b.dropLocked(name, l)
	has := l.Get()
	switch {
	case l.taken:
		r.Verb = requests.Get
	case has == nil && len(l.static) > 0 && now.Before(l.due):
		again = await.Earlier(again, l.due)
	case has == nil && len(l.static) > 0:
		r = Request{requests.Create, l.static[0].Pod}
	case has == nil, !podspec.IsMirror(has), HeldBack(has): // another pod has the name, or nothing is to be done
	case len(l.static) == 0 && b.heard, len(l.static) > 0 && (!podspec.IsMirrorOf(has, l.static[0].Pod) ||
		has.DeletionTimestamp != nil || l.outlived(has)):
		r = Request{requests.Delete, has}
	}
	return r, again
}

// Answered handles the API server's answer to a request; got holds what the API server has under
// the name, if it said so. The error is the reason for a retry. A request that may have taken effect
// is repeated, and its answer tells: a node may not ask for a pod that does not exist.
func (b *Planner) Answered(name types.NamespacedName, r Request, got *v1.Pod, err error,
	now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lineLocked(name)
	defer b.dropLocked(name, l)
	switch {
	case err == nil:
		l.taken, l.holderUnknown, l.homeless = false, false, 0
		l.answered(got, now)
	case r.Verb != requests.Create && apierrors.IsNotFound(err):
		l.taken = false
		l.answered(nil, now)
	case r.Verb == requests.Create && noNamespace(err):
		l.due = now.Add(await.Pauses{First: firstPause, Last: longestPause}.After(l.homeless))
		l.homeless++
	case r.Verb == requests.Create && apierrors.IsAlreadyExists(err):
		l.taken = true
		if l.holderUnknown { // it would again not say which
			return err
		}
	case r.Verb == requests.Delete && apierrors.IsConflict(err): // it has another UID
		l.taken = true
	case r.Verb == requests.Get && apierrors.IsForbidden(err):
		// There is none, or it belongs to another node.
		l.taken, l.holderUnknown = false, true
		return err
	default:
		return err
	}
	return nil
}

// answered records what the API server has, for a while: the watch has the last word.
func (l *line) answered(got *v1.Pod, now time.Time) {
	if got == nil {
		l.Lose()
	} else {
		l.Take(got)
	}
	l.Doubt(now.Add(kubeapi.Patience))
}

// noNamespace reports whether the pod's namespace is missing or terminating.
func noNamespace(err error) bool {
	answer := apierrors.APIStatus(nil)
	if !errors.As(err, &answer) {
		return false
	}
	about := answer.Status().Details
	return apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(err) && about != nil && about.Kind == "namespaces"
}
