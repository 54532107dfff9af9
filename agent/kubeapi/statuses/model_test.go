package statuses

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/kubeapi/mirror"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
)

// key is a pod of which a status is written, or a name of which a mirror pod is kept.
type key struct {
	uid  types.UID
	name types.NamespacedName
}

// call is a request under way.
type call struct {
	write Request
	keep  mirror.Request
	done  bool // the API server has carried it out, with what follows
	got   *v1.Pod
	err   error
}

// here is a pod of the node.
type here struct {
	podstatus.Change
	// ending: it is wanted ended, or has ended by itself.
	ending bool
}

// world is an API server, a node with its pods, and what is on the way between them.
type world struct {
	rand *rand.Rand
	now  time.Time
	api  *fakeAPI

	pods   map[types.UID]*here
	order  []types.UID // of pods, as they came
	writes *Book
	keeps  *mirror.Book

	dirty map[key]bool
	later map[key]time.Time
	calls map[key]*call
	// late are requests that nobody waits for any more and that may be carried out still.
	late []func()
	// cleared are the pods that were cleared here once: they do not run again.
	cleared map[types.UID]bool
	made    int // static pods so far
	trace   []string
}

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_000_000, 0), api: newFakeAPI(),
		pods: map[types.UID]*here{}, writes: NewBook(), keeps: mirror.NewBook(),
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

// tell has both books know of what was written of a pod here.
func (w *world) tell(p *here, c podstatus.Change) {
	p.Change = c
	w.writes.Wrote(c, w.now)
	w.dirty[key{uid: c.Pod.UID}] = true
	if name, look := w.keeps.Wrote(c); look {
		w.lookAtNames([]types.NamespacedName{name})
	}
}

// begin has a pod begin here.
func (w *world) begin(pod *v1.Pod) {
	first := status.First(status.Input{Pod: pod, Now: w.now})
	p := &here{ending: status.Ended(first.Phase)}
	w.pods[pod.UID] = p
	w.order = append(w.order, pod.UID)
	w.tell(p, podstatus.Change{Pod: pod, After: first, First: true})
	w.note("begin %s %s %s", pod.UID, pod.Name, first.Phase)
}

// end has a pod be gone from here.
func (w *world) end(uid types.UID) {
	p := w.pods[uid]
	w.note("end %s", uid)
	w.tell(p, podstatus.Change{Pod: p.Pod, Before: p.After})
	delete(w.pods, uid)
	w.order = slices.DeleteFunc(w.order, func(u types.UID) bool { return u == uid })
}

// deliver has the node see a set of pods: of those that it does not have it begins with some, those
// that are missing are gone from here.
func (w *world) deliver(set []*v1.Pod) {
	for _, uid := range w.writes.Saw(set, w.now) {
		w.dirty[key{uid: uid}] = true
	}
	w.lookAtNames(w.keeps.Saw(set))
	there := map[types.UID]bool{}
	for _, pod := range mirror.Split(set) {
		there[pod.UID] = true
		p := w.pods[pod.UID]
		if p == nil {
			w.begin(pod)
			continue
		}
		p.ending = p.ending || pod.DeletionTimestamp != nil || status.Ended(pod.Status.Phase)
		if adopted := status.Adopt(p.After, pod.Status); !same(adopted, p.After) {
			c := p.Change
			c.Before, c.After = c.After, adopted
			w.tell(p, c)
		}
	}
	for _, uid := range slices.Clone(w.order) {
		if p := w.pods[uid]; !there[uid] && !mirror.IsStatic(p.Pod) {
			w.end(uid)
		}
	}
}

// live has a pod here go on.
func (w *world) live(p *here) {
	c := p.Change
	c.Before, c.First = c.After, false
	next := *c.After.DeepCopy()
	switch {
	case p.Cleared:
		return
	case status.Ended(next.Phase) && p.ending && w.rand.IntN(2) == 0:
		c.Cleared, w.cleared[c.Pod.UID] = true, true
	case status.Ended(next.Phase):
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

// static has a manifest come, change or go.
func (w *world) static() {
	name := "s" + strconv.Itoa(w.rand.IntN(2))
	var last *here
	for _, uid := range w.order {
		if p := w.pods[uid]; p.Pod.Name == name && mirror.IsStatic(p.Pod) {
			last = p
		}
	}
	if last != nil && w.rand.IntN(2) == 0 { // the oldest of the name goes first
		for _, uid := range w.order {
			if p := w.pods[uid]; p.Pod.Name == name && mirror.IsStatic(p.Pod) {
				w.end(uid)
				return
			}
		}
	}
	if w.made++; len(w.order) > 12 {
		return
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name = "n", name
	pod.UID = types.UID("static-" + strconv.Itoa(w.made))
	pod.Annotations = map[string]string{
		source.AnnotationSource: source.FileSource, source.AnnotationHash: string(pod.UID),
	}
	pod.Status.Phase = v1.PodPending
	w.begin(pod)
}

// restore puts the API server back to an earlier state. Nobody's request survives that.
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

// others do something to a pod in the API server.
func (w *world) others() {
	if w.rand.IntN(3) == 0 {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = "n", []string{"a", "b", "c", "s0"}[w.rand.IntN(4)]
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
		w.api.remove(pod.Name)
	case n < 9 && len(pod.Finalizers) > 0 && pod.DeletionTimestamp != nil:
		released := *pod
		if released.Finalizers = nil; *pod.DeletionGracePeriodSeconds == 0 {
			w.api.remove(pod.Name)
		} else {
			w.api.put(&released)
		}
	case !status.Ended(pod.Status.Phase) && w.rand.IntN(4) == 0:
		lost := *pod
		lost.Status.Phase, lost.Status.Reason = v1.PodFailed, "NodeLost"
		w.api.put(&lost)
	}
}

// send has the next request about something be under way.
func (w *world) send(k key) {
	delete(w.dirty, k)
	c := &call{}
	var again time.Time
	if k.uid != "" {
		c.write, again = w.writes.Next(k.uid, w.now)
	} else {
		c.keep, again = w.keeps.Next(k.name, w.now)
	}
	if !again.IsZero() {
		w.later[k] = again
	}
	if c.write.Verb != None || c.keep.Verb != mirror.None {
		w.calls[k] = c
	}
}

// carryOut has the API server do what is asked.
func (w *world) carryOut(c *call) {
	switch c.write.Verb {
	case Get:
		c.got, c.err = w.api.get(c.write.Pod.Name)
	case Patch:
		c.got, c.err = w.api.patch(c.write)
	case Delete:
		w.mayDelete(c.write.Pod)
		c.err = w.api.delete(c.write.Pod, c.write.Pod.ResourceVersion)
	}
	switch c.keep.Verb {
	case mirror.Get, mirror.Create:
		c.got, c.err = w.mirrorCall(c.keep, c)
	case mirror.Delete:
		c.err = w.api.delete(c.keep.Pod, "")
	}
	c.done = true
}

func (w *world) mirrorCall(q mirror.Request, c *call) (*v1.Pod, error) {
	if q.Verb == mirror.Create {
		made := *q.Pod
		made.Annotations = map[string]string{
			source.AnnotationMirror: q.Pod.Annotations[source.AnnotationHash],
		}
		return w.api.create(&made)
	}
	for k, is := range w.calls {
		if is == c {
			return w.api.get(k.name.Name)
		}
	}
	return nil, errLost
}

// mayDelete notes a pod that is deleted while something of it is here, or before its last status is
// known.
func (w *world) mayDelete(pod *v1.Pod) {
	now := w.api.pods[pod.Name]
	if now == nil || now.UID != pod.UID || now.ResourceVersion != pod.ResourceVersion {
		return
	}
	switch p := w.pods[pod.UID]; {
	case p != nil && !p.Cleared && !w.cleared[pod.UID]:
		w.api.wrong = fmt.Errorf("pod %s was deleted while something of it is here", pod.UID)
	case now.DeletionTimestamp == nil || !status.Ended(now.Status.Phase):
		w.api.wrong = fmt.Errorf("pod %s was deleted in phase %s", pod.UID, now.Status.Phase)
	}
}

// answer has a request's answer come; lossy: it may be lost, or the request refused or lost.
func (w *world) answer(k key, lossy bool) {
	c := w.calls[k]
	trouble := 0
	if lossy {
		trouble = w.rand.IntN(8)
	}
	switch {
	case c.done && trouble == 1:
		c.got, c.err = nil, errLost
	case c.done:
	case trouble == 1: // it arrives when nobody waits for it
		late := *c
		w.late = append(w.late, func() { w.carryOut(&late) })
		c.err = errLost
	case trouble == 2:
		c.err = errLost
	case trouble == 3:
		c.err = apierrors.NewTooManyRequestsError("slow down")
	default:
		if w.carryOut(c); lossy {
			return // its answer is on the way
		}
	}
	delete(w.calls, k)
	var again error
	if k.uid != "" {
		_, again = w.writes.Answered(k.uid, c.write, c.got, c.err, w.now)
	} else {
		again = w.keeps.Answered(k.name, c.keep, c.got, c.err, w.now)
	}
	w.note("%s%s %s%s: %v", k.uid, k.name.Name, c.write.Verb, c.keep.Verb, c.err)
	if again == nil {
		w.dirty[k] = true
	} else {
		w.later[k] = w.now.Add(time.Second)
	}
}

// pick is one of the keys of a map, in an order that the seed decides.
func pick[V any](w *world, m map[key]V) (key, bool) {
	if len(m) == 0 {
		return key{}, false
	}
	keys := make([]key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return compareNames(string(a.uid)+"/"+a.name.Name, string(b.uid)+"/"+b.name.Name)
	})
	return keys[w.rand.IntN(len(keys))], true
}

// wake makes due what was to be looked at by now.
func (w *world) wake() {
	for k, at := range w.later {
		if !at.After(w.now) {
			delete(w.later, k)
			w.dirty[k] = true
		}
	}
}

// step is one of anybody's.
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
	case n < 10: // often late, at times an older set than before
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

// rest lets everything arrive, until nobody has anything to do.
func (w *world) rest() error {
	for _, f := range w.late {
		f()
	}
	w.late = nil
	for range 2000 {
		w.deliver(w.api.history[len(w.api.history)-1])
		for _, uid := range slices.Clone(w.order) {
			if p := w.pods[uid]; p.ending && !p.Cleared {
				w.live(p)
			}
		}
		k, busy := pick(w, w.calls)
		if !busy {
			if k, busy = pick(w, w.dirty); busy {
				w.send(k)
			}
		}
		if w.calls[k] != nil {
			w.answer(k, false)
		}
		if !busy && len(w.later) == 0 {
			return nil
		}
		if !busy {
			w.now = w.now.Add(time.Second)
			w.wake()
		}
	}
	return fmt.Errorf("it does not come to rest: %v, %v", w.dirty, w.later)
}

// settled checks what must hold once everything has arrived.
func (w *world) settled() error {
	mirrored := map[string]bool{}
	for _, uid := range w.order {
		p := w.pods[uid]
		there := w.api.pods[p.Pod.Name]
		if mirror.IsStatic(p.Pod) {
			if mirrored[p.Pod.Name] || there != nil && !mirror.Is(there) {
				continue // another one is before it, or has its name
			}
			mirrored[p.Pod.Name] = true
			if there == nil || !mirror.IsOf(there, p.Pod) {
				return fmt.Errorf("static pod %s has no mirror pod, but %v", uid, there)
			}
		}
		switch {
		case there == nil || !mirror.Is(there) && there.UID != uid:
			return fmt.Errorf("pod %s is here and not in the API server", uid)
		case p.First && there.Status.StartTime != nil:
		case !same(there.Status, status.Merge(there.Status, p.After)):
			return fmt.Errorf("the status of pod %s is %+v, and here %+v", uid, there.Status, p.After)
		case p.Cleared && there.DeletionTimestamp != nil && !mirror.Is(there) &&
			*there.DeletionGracePeriodSeconds != 0:
			return fmt.Errorf("pod %s was forgotten in the API server", uid)
		}
	}
	for name, there := range w.api.pods {
		if mirror.Is(there) && !mirrored[name] {
			return fmt.Errorf("mirror pod %s has no static pod", name)
		}
		for t, s := range w.api.others[there.UID] {
			if !slices.ContainsFunc(there.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == t && c.Status == s
			}) {
				return fmt.Errorf("condition %s=%s of pod %s is lost", t, s, there.UID)
			}
		}
	}
	return nil
}

const (
	modelSteps = 1_000_000
	fewSteps   = 100_000
	walkSteps  = 25_000
)

// The API server ends up with what is true here, whatever is lost, late, repeated or out of order
// on the way: the last status, no pod deleted early, none forgotten, one mirror pod for each static
// one.
func TestModel(t *testing.T) {
	steps := fewSteps
	if os.Getenv("CI") == "true" && !testing.Short() {
		steps = modelSteps
	}
	number := func(name string, of int) int {
		text := os.Getenv(name)
		if text == "" {
			return of
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	steps = number("NUMALET_STEPS", steps)
	base := number("NUMALET_STEPS_SEED", int(rand.Uint32()))
	for i := range (steps + walkSteps - 1) / walkSteps {
		seed := base + i
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			walk(t, uint64(seed), min(walkSteps, steps-i*walkSteps))
		})
	}
}

func walk(t *testing.T, seed uint64, steps int) {
	w := newWorld(seed)
	check := func(step int, err error) {
		if err == nil {
			err = w.api.wrong
		}
		if err != nil {
			t.Fatalf("NUMALET_STEPS_SEED=%d, step %d: %v\n%s", seed, step, err, w.story())
		}
	}
	for i := range steps {
		w.step()
		check(i, nil)
		if i%250 != 249 {
			continue
		}
		check(i, w.rest())
		check(i, w.settled())
		wrote := w.api.wrote
		check(i, w.rest())
		if w.api.wrote != wrote {
			check(i, fmt.Errorf("something is written although nothing happened"))
		}
		w.trace = w.trace[:0]
	}
	if w.api.wrote < steps/50 {
		t.Errorf("%d writes in %d steps: the walk does not go there", w.api.wrote, steps)
	}
}

func (w *world) story() (text string) {
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		text += line + "\n"
	}
	return text
}
