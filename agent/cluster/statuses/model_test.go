package statuses

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// key is a pod whose status is written, or a name for which a mirror pod is kept.
type key struct {
	uid  types.UID
	name types.NamespacedName
}

// call is a pending request.
type call struct {
	write Request
	keep  mirror.Request
	done  bool // the API server has carried it out, with its consequences
	got   *v1.Pod
	err   error
}

// here is a pod of the node.
type here struct {
	podstatus.Change
	// ending is set if it should end, or has ended by itself.
	ending bool
}

// world is an API server, a node with its pods, and the messages between them.
type world struct {
	rand *rand.Rand
	now  time.Time
	api  *fakeAPI

	pods   map[types.UID]*here
	order  []types.UID // UIDs of pods in order of arrival
	writes *Planner
	keeps  *mirror.Planner

	dirty map[key]bool
	later map[key]time.Time
	calls map[key]*call
	// late are requests that nobody waits for and that may still be carried out.
	late []func()
	// cleared are the pods that were cleared here once: they must not run again.
	cleared map[types.UID]bool
	made    int // number of static pods so far
	trace   []string
}

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_000_000, 0), api: newFakeAPI(),
		pods: map[types.UID]*here{}, writes: NewPlanner(), keeps: mirror.NewPlanner(),
		dirty: map[key]bool{}, later: map[key]time.Time{}, calls: map[key]*call{},
		cleared: map[types.UID]bool{},
	}
	w.lookAtNames(w.keeps.Heard())
	return w
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) lookAtNames(names []types.NamespacedName) {
	for _, name := range names {
		w.dirty[key{name: name}] = true
	}
}

// tell informs both planners of what was written for a pod here.
func (w *world) tell(p *here, c podstatus.Change) {
	p.Change = c
	w.writes.Wrote(c, w.now)
	w.dirty[key{uid: c.Pod.UID}] = true
	if name, look := w.keeps.Wrote(c); look {
		w.lookAtNames([]types.NamespacedName{name})
	}
}

// begin starts a pod here.
func (w *world) begin(pod *v1.Pod) {
	first := status.First(status.Input{Pod: pod, Now: w.now})
	p := &here{ending: podspec.Ended(first.Phase)}
	w.pods[pod.UID] = p
	w.order = append(w.order, pod.UID)
	w.tell(p, podstatus.Change{Pod: pod, After: first, First: true})
	w.note("begin %s %s %s", pod.UID, pod.Name, first.Phase)
}

// again has a pod here begin again under its UID.
func (w *world) again(p *here) {
	first := status.First(status.Input{Pod: p.Pod, Previous: status.Anew(p.After), Now: w.now})
	w.note("again %s", p.Pod.UID)
	p.ending = false
	w.tell(p, podstatus.Change{Pod: p.Pod, After: first, First: true, Again: !p.First})
}

// end removes a pod from here.
func (w *world) end(uid types.UID) {
	p := w.pods[uid]
	w.note("end %s", uid)
	w.tell(p, podstatus.Change{Pod: p.Pod, Before: p.After})
	delete(w.pods, uid)
	w.order = slices.DeleteFunc(w.order, func(u types.UID) bool { return u == uid })
}

// deliver delivers a set of pods to the node: some of the new ones start here, and missing ones are
// removed.
func (w *world) deliver(set []*v1.Pod) {
	for _, uid := range w.writes.Saw(set, w.now) {
		w.dirty[key{uid: uid}] = true
	}
	w.lookAtNames(w.keeps.Saw(set, w.now))
	there := map[types.UID]bool{}
	for _, pod := range podspec.WithoutMirrors(set) {
		there[pod.UID] = true
		p := w.pods[pod.UID]
		if p == nil {
			w.begin(pod)
			continue
		}
		p.ending = p.ending || pod.DeletionTimestamp != nil || podspec.Ended(pod.Status.Phase)
		if adopted := status.Adopt(p.After, pod.Status); !same(adopted, p.After) {
			c := p.Change
			c.Before, c.After = c.After, adopted
			w.tell(p, c)
		}
	}
	for _, uid := range slices.Clone(w.order) {
		if p := w.pods[uid]; !there[uid] && !podspec.IsStatic(p.Pod) {
			w.end(uid)
		}
	}
}

// live advances a pod here.
func (w *world) live(p *here) {
	c := p.Change
	c.Before, c.First = c.After, false
	next := *c.After.DeepCopy()
	switch {
	case p.Cleared:
		return
	case podspec.Ended(next.Phase) && p.ending && w.rand.IntN(2) == 0:
		c.Cleared, w.cleared[c.Pod.UID] = true, true
	case podspec.Ended(next.Phase):
		next.Message = strconv.Itoa(w.rand.IntN(3))
	case p.ending || w.rand.IntN(12) == 0:
		next.Phase = []v1.PodPhase{v1.PodSucceeded, v1.PodFailed}[w.rand.IntN(2)]
	default:
		next.Phase = v1.PodRunning
		next.Message = strconv.Itoa(w.rand.IntN(3))
		ready := []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse}[w.rand.IntN(2)]
		for i := range next.Conditions {
			if now := &next.Conditions[i]; now.Type == v1.PodReady && now.Status != ready {
				now.Status, now.LastTransitionTime = ready, metav1.NewTime(w.now)
			}
		}
	}
	c.After = next
	w.tell(p, c)
	w.note("live %s %s cleared=%t", c.Pod.UID, next.Phase, c.Cleared)
}

// static adds, changes or removes a manifest.
func (w *world) static() {
	name := "s" + strconv.Itoa(w.rand.IntN(2))
	var last *here
	for _, uid := range w.order {
		if p := w.pods[uid]; p.Pod.Name == name && podspec.IsStatic(p.Pod) {
			last = p
		}
	}
	if last != nil && w.rand.IntN(3) == 0 {
		w.again(last)
		return
	}
	if last != nil && w.rand.IntN(2) == 0 { // the oldest of the name is removed first
		for _, uid := range w.order {
			if p := w.pods[uid]; p.Pod.Name == name && podspec.IsStatic(p.Pod) {
				w.end(uid)
				return
			}
		}
	}
	if w.made++; len(w.order) > 12 {
		return
	}
	uid := "static-" + strconv.Itoa(w.made)
	pod := podtest.New("n/"+name, podtest.UID(uid), podtest.Phase(v1.PodPending),
		podtest.Source(source.FileSource), podtest.Annotations(podspec.AnnotationHash, uid))
	w.begin(pod)
}

// restore restores the API server from a backup; all pending requests are lost.
func (w *world) restore() {
	w.note("restored")
	w.late = nil
	for k, c := range w.calls {
		c.done, c.err = true, errLost
		w.answer(k, false)
	}
	w.api.restore(1 + w.rand.IntN(20))
	clear(w.cleared)
}

// others changes a pod in the API server as another client.
func (w *world) others() {
	if w.rand.IntN(3) == 0 {
		pod := podtest.New("n/"+[]string{"a", "b", "c", "s0"}[w.rand.IntN(4)], podtest.UID(""))
		if w.rand.IntN(8) == 0 {
			pod.Finalizers = []string{"example.com/held"}
		}
		_, _ = w.api.create(pod) // unless the name is taken
		return
	}
	set := w.api.history[len(w.api.history)-1]
	if len(set) == 0 {
		return
	}
	pod := set[w.rand.IntN(len(set))]
	switch n := w.rand.IntN(10); {
	case n < 4:
		w.api.writeCondition(pod, v1.PodCondition{
			Type:   []v1.PodConditionType{"example.com/gate", "example.com/b"}[w.rand.IntN(2)],
			Status: []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse}[w.rand.IntN(2)],
		})
	case n < 7:
		w.api.wantsDeleted(pod)
	case n < 8:
		w.note("forced %s", pod.UID)
		if w.rand.IntN(4) == 0 {
			w.api.mark(pod) // and the server crashes
		} else {
			w.api.remove(pod.Name)
		}
	case n < 9 && len(pod.Finalizers) > 0 && pod.DeletionTimestamp != nil:
		released := *pod
		if released.Finalizers = nil; *pod.DeletionGracePeriodSeconds == 0 {
			w.api.remove(pod.Name)
		} else {
			w.api.put(&released)
		}
	case w.rand.IntN(2) == 0: // another node of that name
		other := *pod
		other.Status.Message = "of another node"
		w.api.put(&other)
	case !podspec.Ended(pod.Status.Phase) && w.rand.IntN(4) == 0:
		lost := *pod
		lost.Status.Phase, lost.Status.Reason = v1.PodFailed, "NodeLost"
		w.api.put(&lost)
	}
}

// wake schedules keys whose time has come.
func (w *world) wake() {
	for k, at := range w.later {
		if !at.After(w.now) {
			delete(w.later, k)
			w.dirty[k] = true
		}
	}
}

// step makes one random step of any participant.
func (w *world) step() {
	switch n := w.rand.IntN(20); {
	case n < 1 && w.rand.IntN(50) == 0:
		w.restore()
	case n < 2:
		w.others()
	case n < 3:
		w.static()
	case n < 7:
		if len(w.order) > 0 {
			w.live(w.pods[w.order[w.rand.IntN(len(w.order))]])
		}
	case n < 10: // often late, sometimes an older set than the last one
		ago := max(0, w.rand.IntN(8)-3)
		w.deliver(w.api.history[max(0, len(w.api.history)-1-ago)])
	case n < 11:
		w.now = w.now.Add(time.Duration(w.rand.IntN(4000)) * time.Millisecond)
		w.wake()
	case n < 12 && len(w.late) > 0:
		w.late[0]()
		w.late = w.late[1:]
	case n < 16:
		if k, ok := pick(w, w.dirty); ok && w.calls[k] == nil {
			w.send(k)
		}
	default:
		if k, ok := pick(w, w.calls); ok {
			w.answer(k, true)
		}
	}
}
