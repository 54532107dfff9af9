package statuses

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/topology/podspec"
)

// Request is a request to the API server about a pod.
type Request struct {
	Verb requests.Verb
	// Pod is the API server's pod as known here. A Patch or Delete applies only to this version.
	Pod *v1.Pod
	// Status is the status that a Patch results in.
	Status v1.PodStatus
	// own is the version of our own status in Status.
	own int
}

// Planner holds the statuses of the node's pods and what the API server has of them, and decides on
// the next request. It sends no requests and reads no clock. Its methods may be called from any
// goroutine; about one pod only one request may be pending.
type Planner struct {
	mu      sync.Mutex                           // guards the fields below
	pods    map[types.UID]*local                 // by their UID here
	remotes map[types.UID]*remote                // by their UID in the API server
	static  map[types.NamespacedName][]types.UID // static pods here by name
	mirrors map[types.NamespacedName]types.UID   // the mirror pods
}

// local says how a pod is here.
type local struct {
	podstatus.Change
	version    int
	since      time.Time // time of the oldest change that the API server may lack; zero: it has all
	truncation truncation
	refusal    complaint.Complaint[string] // what the API server does not take of the status
}

// remote says how a pod is in the API server, as far as known.
type remote struct {
	kubeapi.Copy[*v1.Pod] // in doubt the API server is asked
	// contested is set if another client wrote to it between our read and write.
	contested bool
	// sent is the last status written, got the status that it became; nil: none was written.
	sent, got *v1.PodStatus
	repeats   repeats
}

// NewPlanner returns an empty Planner.
func NewPlanner() *Planner {
	return &Planner{
		pods: map[types.UID]*local{}, remotes: map[types.UID]*remote{},
		static:  map[types.NamespacedName][]types.UID{},
		mirrors: map[types.NamespacedName]types.UID{},
	}
}

// Wrote records a status that was written for a pod of the node.
func (b *Planner) Wrote(c podstatus.Change, now time.Time) {
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
	p.truncation.again()
	if p.since.IsZero() {
		p.since = now
	}
}

func (b *Planner) forgetLocked(uid types.UID) {
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

// Saw records the delivered set of all pods that the API server has for the node. It returns the
// UIDs of pods here that may need a request.
func (b *Planner) Saw(all []*v1.Pod, now time.Time) (look []types.UID) {
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
		if r.Delivered() == pod {
			continue
		}
		r.Deliver(pod, now)
		if !podspec.IsMirror(pod) {
			look = append(look, pod.UID)
			continue
		}
		b.mirrors[podspec.Name(pod)] = pod.UID
		look = append(look, b.static[podspec.Name(pod)]...)
	}
	for uid, r := range b.remotes {
		if !there[uid] {
			delete(b.remotes, uid)
			if name := podspec.Name(r.Last()); b.mirrors[name] == uid {
				delete(b.mirrors, name)
			}
		}
	}
	return look
}

// remoteLocked returns the API server's pod that carries the status of a pod here; nil: none is
// known.
func (b *Planner) remoteLocked(p *local) *remote {
	if !podspec.IsStatic(p.Pod) {
		return b.remotes[p.Pod.UID]
	}
	r := b.remotes[b.mirrors[podspec.Name(p.Pod)]]
	if r == nil || !podspec.IsMirrorOf(r.Last(), p.Pod) {
		return nil
	}
	return r
}

// outlives reports whether the mirror pod, as it is known, has ended with an earlier life of the pod: it gets no
// status, and is made anew.
func (p *local) outlives(r *remote) bool {
	return podspec.IsStatic(p.Pod) && mirror.Outlived(r.Last(), p.Change)
}

// Next returns the next request about a pod here. again is the time at which there may be one
// without a further event.
func (b *Planner) Next(uid types.UID, now time.Time) (q Request, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	if p == nil {
		return Request{}, time.Time{}
	}
	r := b.remoteLocked(p)
	if r == nil {
		return Request{}, time.Time{}
	}
	pod := r.Last()
	doubted, again := r.Doubted(now)
	switch {
	case doubted:
		return Request{Verb: requests.Get, Pod: pod}, time.Time{}
	case r.Get() == nil, p.outlives(r):
		return Request{}, again
	}
	want := p.truncation.apply(pod.Status, status.Merge(pod.Status, p.After))
	switch {
	case p.First: // it says no more than what is there, and a pod that is refused had none of it
	case !same(want, pod.Status) && !r.refuses(want):
		if due := r.repeats.due(p.version); now.Before(due) {
			return Request{}, await.Earlier(again, due)
		}
		return Request{Verb: requests.Patch, Pod: pod, Status: want, own: p.version}, again
	default:
		p.since = time.Time{}
	}
	if p.Cleared && !podspec.IsStatic(p.Pod) && deletable(pod) {
		return Request{Verb: requests.Delete, Pod: pod}, again
	}
	return Request{}, again
}

// lacks reports whether the API server lacks the newest status of a pod that it has.
func (b *Planner) lacks() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		if b.lackedLocked(p) {
			return true
		}
	}
	return false
}

// lackedLocked reports whether the API server lacks the newest status of a pod that it has.
func (b *Planner) lackedLocked(p *local) bool {
	r := b.remoteLocked(p)
	return !p.since.IsZero() && !p.First && r != nil && !p.outlives(r)
}

// isPublished reports whether the API server has the newest status of a pod here, or has no pod for it.
func (b *Planner) isPublished(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	return p == nil || !b.lackedLocked(p)
}

// refuses reports whether this status was already written and became what the API server has now:
// it then wants it that way.
func (r *remote) refuses(want v1.PodStatus) bool {
	return r.sent != nil && same(want, *r.sent) && same(*r.got, r.Last().Status)
}

// deletable reports whether the API server wants the pod deleted, has its final status, and waits
// for the node.
func deletable(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && podspec.Ended(pod.Status.Phase) && !mirror.HeldBack(pod)
}

// same compares statuses, ignoring the order of conditions.
func same(a, b v1.PodStatus) bool {
	if len(a.Conditions) != len(b.Conditions) {
		return false
	}
	a.Conditions, b.Conditions = sorted(a.Conditions), sorted(b.Conditions)
	return equality.Semantic.DeepEqual(a, b)
}
