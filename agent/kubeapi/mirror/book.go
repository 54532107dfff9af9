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

	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/podspec"
)

// patience is how long an answer counts more than a set that says otherwise: a watch is behind.
const patience = 10 * time.Second

// While the namespace of a static pod is gone, or goes, its mirror pod is tried again after pauses that
// grow from the first to the longest.
const firstPause, longestPause = 10 * time.Second, 5 * time.Minute

// Request is one to the API server about a mirror pod.
type Request struct {
	Verb requests.Verb
	// Pod is the static pod whose mirror pod is to be created, or the pod to delete, which has to
	// have that UID still.
	Pod *v1.Pod
}

// Book has the node's static pods and their mirror pods, and knows what is to be requested next. It
// requests nothing itself and has no clock. All methods may be called from anywhere; of one name
// only one request may be under way.
type Book struct {
	mu    sync.Mutex                     // guards what follows
	names map[types.NamespacedName]*line // which a static pod and its mirror pod have in common
	heard bool
}

// line is what the book has of a name. One that says nothing is not there.
type line struct {
	static []*v1.Pod // in the order in which they came; the first counts
	seen   *v1.Pod   // what the API server had by its last set; nil: nothing
	// answer is newer than seen, until the set agrees with it or it is too old; nil: there is none.
	answer *answer
	doubt  bool // another pod has the name, and it is not known which
	// untold: the API server did not tell which when it was asked last.
	untold bool
	// homeless is how often in a row there was no namespace for the mirror pod, due when it is tried
	// again then.
	homeless int
	due      time.Time
}

// answer is what the API server had by its last answer.
type answer struct {
	pod *v1.Pod // nil: nothing
	at  time.Time
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{names: map[types.NamespacedName]*line{}} }

// Heard takes that every source of pods was heard: a mirror pod without a static pod has none.
// It returns the names to look at.
func (b *Book) Heard() (look []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = true
	return slices.Collect(maps.Keys(b.names))
}

// Wrote takes what was written of a pod of the node. look: its name is to be looked at.
func (b *Book) Wrote(c podstatus.Change) (name types.NamespacedName, look bool) {
	if name = podspec.Name(c.Pod); !podspec.IsStatic(c.Pod) {
		return name, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lineLocked(name)
	defer b.dropLocked(name, l)
	at := slices.IndexFunc(l.static, func(p *v1.Pod) bool { return p.UID == c.Pod.UID })
	switch {
	case c.Ends() && at >= 0:
		l.static = slices.Delete(l.static, at, at+1)
		return name, true
	case c.Ends():
		return name, false
	case at < 0:
		l.static = append(l.static, c.Pod)
		return name, true
	default:
		l.static[at] = c.Pod
		return name, false // neither its hash nor its name is another
	}
}

func (b *Book) lineLocked(name types.NamespacedName) *line {
	l := b.names[name]
	if l == nil {
		l = &line{}
		b.names[name] = l
	}
	return l
}

func (b *Book) dropLocked(name types.NamespacedName, l *line) {
	if len(l.static) == 0 && l.seen == nil && l.answer == nil && !l.doubt {
		delete(b.names, name)
	}
}

// Saw takes all pods that the API server has for the node, and returns the names to look at.
func (b *Book) Saw(all []*v1.Pod) (look []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[types.NamespacedName]bool, len(all))
	for _, pod := range all {
		name := podspec.Name(pod)
		l, known := b.names[name]
		if there[name] || !known && !Is(pod) {
			continue // none of our business
		}
		there[name] = true
		if !known {
			l = b.lineLocked(name)
		}
		if l.seen != pod {
			l.see(pod)
			look = append(look, name)
		}
	}
	for name, l := range b.names {
		if l.seen != nil && !there[name] {
			l.see(nil)
			look = append(look, name)
		}
	}
	return look
}

// see takes what the set has of the name.
func (l *line) see(pod *v1.Pod) {
	l.seen = pod
	if l.answer != nil && uidOf(l.answer.pod) == uidOf(pod) {
		l.answer = nil
	}
}

func uidOf(pod *v1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// has is what the API server has now, as far as is known.
func (l *line) has() *v1.Pod {
	if l.answer != nil {
		return l.answer.pod
	}
	return l.seen
}

// Next is the next request about a name. again: when there may be one although nothing happens.
func (b *Book) Next(name types.NamespacedName, now time.Time) (r Request, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.names[name]
	if l == nil {
		return Request{}, time.Time{}
	}
	if l.answer != nil {
		if again = l.answer.at.Add(patience); !now.Before(again) {
			l.answer, again = nil, time.Time{}
		}
	}
	defer b.dropLocked(name, l)
	has := l.has()
	switch {
	case l.doubt:
		r.Verb = requests.Get
	case has == nil && len(l.static) > 0 && now.Before(l.due):
		again = await.Earlier(again, l.due)
	case has == nil && len(l.static) > 0:
		r = Request{requests.Create, l.static[0]}
	case has == nil, !Is(has), HeldBack(has): // another pod has the name, or there is nothing to do
	case len(l.static) == 0 && b.heard,
		len(l.static) > 0 && (!IsOf(has, l.static[0]) || has.DeletionTimestamp != nil):
		r = Request{requests.Delete, has}
	}
	return r, again
}

// Answered takes what the API server answered to a request, with what it has of the name then if it
// said that, at a time. The error is why to try again. A request that may have taken effect is made
// again and tells: the API server does not let a node ask for a pod that is not there.
func (b *Book) Answered(name types.NamespacedName, r Request, got *v1.Pod, err error,
	now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lineLocked(name)
	defer b.dropLocked(name, l)
	switch {
	case err == nil:
		l.doubt, l.untold, l.answer = false, false, &answer{got, now}
		l.homeless = 0
	case r.Verb != requests.Create && apierrors.IsNotFound(err):
		l.doubt, l.answer = false, &answer{nil, now}
	case r.Verb == requests.Create && noNamespace(err):
		l.due = now.Add(min(firstPause<<min(l.homeless, 10), longestPause))
		l.homeless++
	case r.Verb == requests.Create && apierrors.IsAlreadyExists(err):
		l.doubt = true
		if l.untold { // it would not tell again at once
			return err
		}
	case r.Verb == requests.Delete && apierrors.IsConflict(err): // it has another UID
		l.doubt = true
	case r.Verb == requests.Get && apierrors.IsForbidden(err):
		// There is none, or it is no pod of this node.
		l.doubt, l.untold = false, true
		return err
	default:
		return err
	}
	return nil
}

// noNamespace reports whether the API server has no namespace for the pod, or one that goes.
func noNamespace(err error) bool {
	answer := apierrors.APIStatus(nil)
	if !errors.As(err, &answer) {
		return false
	}
	about := answer.Status().Details
	return apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(err) && about != nil && about.Kind == "namespaces"
}
