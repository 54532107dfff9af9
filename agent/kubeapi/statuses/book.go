package statuses

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/mirror"
	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/podspec"
)

// patience is how long an answer counts more than a delivered version that is older: a watch is
// behind. After it the API server is asked: it may have been put back to an earlier state.
const patience = 10 * time.Second

// Request is one to the API server about a pod.
type Request struct {
	Verb requests.Verb
	// Pod is what the API server has, as far as is known: a Patch and a Delete are of this version.
	Pod *v1.Pod
	// Status is what a Patch makes of its status.
	Status v1.PodStatus
	// own is the version of our own status in it.
	own int
}

// Book has the statuses of the node's pods and what the API server has of them, and knows what is
// to be requested next. It requests nothing itself and has no clock. All methods may be called from
// anywhere; about one pod only one request may be under way.
type Book struct {
	mu      sync.Mutex                           // guards what follows
	pods    map[types.UID]*local                 // by their UID here
	remotes map[types.UID]*remote                // by their UID in the API server
	static  map[types.NamespacedName][]types.UID // the pods here of a name, if they are static
	mirrors map[types.NamespacedName]types.UID   // of the mirror pods
}

// local is what is known of a pod here.
type local struct {
	podstatus.Change
	version int
	since   time.Time // of the oldest change that the API server may not have; zero: it has all
	cut     cut
}

// remote is what is known of a pod in the API server.
type remote struct {
	pod       *v1.Pod // its newest version
	delivered *v1.Pod // the last one that was delivered
	// ask is from when on the API server is to be asked what it has; zero: it is known.
	ask time.Time
	// gone: it has this version no more, nor another one as far as is known.
	gone bool
	// contested: somebody else had written to it when it was written to.
	contested bool
	// sent is the last status that was written, and got what became of it; nil: nothing was.
	sent, got *v1.PodStatus
	repeats   repeats
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{
		pods: map[types.UID]*local{}, remotes: map[types.UID]*remote{},
		static:  map[types.NamespacedName][]types.UID{},
		mirrors: map[types.NamespacedName]types.UID{},
	}
}

// Wrote takes what was written of a pod of the node, at a time.
func (b *Book) Wrote(c podstatus.Change, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := c.Pod.UID
	if c.Ends() {
		b.forgetLocked(uid)
		return
	}
	p := b.pods[uid]
	if p == nil {
		p = &local{}
		b.pods[uid] = p
		if name := podspec.Name(c.Pod); podspec.IsStatic(c.Pod) {
			b.static[name] = append(b.static[name], uid)
		}
	}
	p.Change = c
	p.version++
	p.cut.again()
	if p.since.IsZero() {
		p.since = now
	}
}

func (b *Book) forgetLocked(uid types.UID) {
	p, known := b.pods[uid]
	if !known {
		return
	}
	delete(b.pods, uid)
	if name := podspec.Name(p.Pod); podspec.IsStatic(p.Pod) {
		b.static[name] = slices.DeleteFunc(b.static[name], func(u types.UID) bool { return u == uid })
		if len(b.static[name]) == 0 {
			delete(b.static, name)
		}
	}
}

// Saw takes all pods that the API server has for the node, as delivered at a time, and returns the
// pods here to look at, by their UIDs.
func (b *Book) Saw(all []*v1.Pod, now time.Time) (look []types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[types.UID]bool, len(all))
	for _, pod := range all {
		there[pod.UID] = true
		r := b.remotes[pod.UID]
		if r == nil {
			r = &remote{}
			b.remotes[pod.UID] = r
		}
		if r.delivered == pod {
			continue
		}
		r.see(pod, now)
		if !mirror.Is(pod) {
			look = append(look, pod.UID)
			continue
		}
		b.mirrors[podspec.Name(pod)] = pod.UID
		look = append(look, b.static[podspec.Name(pod)]...)
	}
	for uid, r := range b.remotes {
		if !there[uid] {
			delete(b.remotes, uid)
			if name := podspec.Name(r.pod); b.mirrors[name] == uid {
				delete(b.mirrors, name)
			}
		}
	}
	return look
}

// see takes a version that was delivered. An older one than what is known comes late, unless the
// API server was put back to an earlier state.
func (r *remote) see(pod *v1.Pod, now time.Time) {
	r.delivered = pod
	late := r.pod != nil && (older(pod, r.pod) ||
		r.gone && r.pod.ResourceVersion == pod.ResourceVersion)
	switch {
	case !late:
		r.take(pod)
	case r.ask.IsZero():
		r.ask = now.Add(patience)
	}
}

// take takes a version that the API server has now.
func (r *remote) take(pod *v1.Pod) { r.pod, r.ask, r.gone = pod, time.Time{}, false }

// older reports whether a is a version before b. Versions that cannot be compared are taken as they
// come.
func older(a, b *v1.Pod) bool {
	return kubeapi.Older(a.ResourceVersion, b.ResourceVersion)
}

// remoteLocked is the pod in the API server that has the status of a pod here; nil: none is known.
func (b *Book) remoteLocked(p *local) *remote {
	if !podspec.IsStatic(p.Pod) {
		return b.remotes[p.Pod.UID]
	}
	r := b.remotes[b.mirrors[podspec.Name(p.Pod)]]
	if r == nil || !mirror.IsOf(r.pod, p.Pod) {
		return nil
	}
	return r
}

// Next is the next request about a pod here. again: when there may be one although nothing happens.
func (b *Book) Next(uid types.UID, now time.Time) (q Request, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	if p == nil {
		return Request{}, time.Time{}
	}
	r := b.remoteLocked(p)
	switch {
	case r == nil:
		return Request{}, time.Time{}
	case !r.ask.IsZero() && !now.Before(r.ask):
		return Request{Verb: requests.Get, Pod: r.pod}, time.Time{}
	case r.gone:
		return Request{}, r.ask
	}
	want := p.cut.apply(r.pod.Status, status.Merge(r.pod.Status, p.After))
	switch {
	case p.First: // it says no more than what is there, and a pod that is refused had none of it
	case !same(want, r.pod.Status) && !r.refuses(want):
		if due := r.repeats.due(p.version); now.Before(due) {
			return Request{}, await.Earlier(r.ask, due)
		}
		return Request{Verb: requests.Patch, Pod: r.pod, Status: want, own: p.version}, r.ask
	default:
		p.since = time.Time{}
	}
	if p.Cleared && !podspec.IsStatic(p.Pod) && deletable(r.pod) {
		return Request{Verb: requests.Delete, Pod: r.pod}, r.ask
	}
	return Request{}, r.ask
}

// refuses reports whether this status was written already and became what the API server has: then
// that is how the API server wants it.
func (r *remote) refuses(want v1.PodStatus) bool {
	return r.sent != nil && same(want, *r.sent) && same(*r.got, r.pod.Status)
}

// deletable reports whether the API server wants the pod deleted, knows of its end, and waits for
// the node with it.
func deletable(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && status.Ended(pod.Status.Phase) && !mirror.HeldBack(pod)
}

// same compares statuses, in which the order of conditions says nothing.
func same(a, b v1.PodStatus) bool {
	if len(a.Conditions) != len(b.Conditions) {
		return false
	}
	a.Conditions, b.Conditions = sorted(a.Conditions), sorted(b.Conditions)
	return equality.Semantic.DeepEqual(a, b)
}
