package rig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/resize"
)

// resizing has the agent's line decide on resizes. The line has every running pod, as an agent's that starts
// on what is recorded.
type resizing struct {
	*line.Line
	state allocation.State // what is recorded
	now   time.Duration
	due   []ask        // the next one is last
	open  map[int]*ask // by arrival: asked for, and neither done nor withdrawn
	tell  func(answer) error
}

// ask is a resize that a pod asks for.
type ask struct {
	at            time.Duration
	arrival, size int
	// deferred: it was said to wait. infeasible: a rule forbids it.
	deferred, infeasible bool
}

// answer has the line's decision on a resize. The first one with a reason counts.
type answer struct {
	*ask
	decide.Resizing
	held allocation.Pod // what the pod has if it is done
}

// boot is the boot id of all that is recorded.
const boot = "rig"

func newResizing(w *world, p Policy, wait time.Duration, tell func(answer) error) *resizing {
	z := &resizing{open: map[int]*ask{}, tell: tell}
	z.Line = line.New(line.Settings{
		Rules: p.Rules, BootID: boot, Wait: wait, Clock: func() time.Time { return time.Unix(0, 0).Add(z.now) },
		ResizeRule: resize.Rules{
			StaticCPUs: !p.SharedCPUs, StaticMemory: p.PlacedMemory,
			Enabled: func(string) bool { return true },
			Swaps:   func(*v1.Pod, *v1.Container) bool { return false },
		}.Check,
	}, line.Facts{
		ClaimsOf: func(*v1.Pod) allocation.PodClaims { return allocation.PodClaims{} },
		Lack:     func(*v1.Pod) decide.Lack { return decide.Lack{} },
	})
	z.Step(line.Seen{View: decide.View{
		Hardware: machine.Hardware{
			Machine: w.site.Machine, CPUs: w.room.CPUs, Memory: w.room.Memory, Options: w.room.Options,
			Allocatable: w.site.Allocatable,
		},
		Inventory: w.site.Inventory,
	}})
	return z
}

// podOf returns the pod of an arrival that asks for what the shape does.
func podOf(arrival int, l *lot) *v1.Pod {
	pod := *l.Pod
	pod.UID, pod.Name = uidOf(arrival), fmt.Sprintf("%s-%d", l.Pod.Name, arrival+1)
	return &pod
}

// admitted takes in a pod that was admitted, and the resizes that it will ask for.
func (z *resizing) admitted(at time.Duration, arrival int, t tenant, resizes []Resize) error {
	z.now = at
	held := t.held
	held.UID, held.BootID = uidOf(arrival), boot
	held.Containers = map[string]allocation.Container{}
	for name, c := range t.held.Containers {
		held.Containers[name] = c.With(c.Devices().With(func(d *allocation.DeviceSet) { d.Answer = []byte{} }))
	}
	if !held.IsEmpty() {
		if err := z.commit(allocation.Change{Put: held}); err != nil {
			return err
		}
	}
	if err := z.steps(line.Submitted{Pod: podOf(arrival, t.shape), Adopt: true}, line.Tick{}); err != nil {
		return err
	}
	for _, r := range resizes {
		a := ask{at: at + r.After, arrival: arrival, size: r.Size}
		place, _ := slices.BinarySearchFunc(z.due, a, laterAsk)
		z.due = slices.Insert(z.due, place, a)
	}
	return nil
}

// laterAsk orders resizes by time, the last first.
func laterAsk(a, b ask) int {
	return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.arrival, a.arrival))
}

// left forgets a pod, and returns the resize that it waited for; nil: none.
func (z *resizing) left(at time.Duration, arrival int) (*ask, error) {
	z.now = at
	waited := z.open[arrival]
	delete(z.open, arrival)
	uid := uidOf(arrival)
	return waited, z.steps(line.Left{UID: uid}, line.Gone{UID: uid})
}

// next returns when a pod asks for something next.
func (z *resizing) next() (at time.Duration, ok bool) {
	if z == nil || len(z.due) == 0 {
		return 0, false
	}
	return z.due[len(z.due)-1].at, true
}

// take returns the next resize that is due.
func (z *resizing) take(at time.Duration) (a ask, ok bool) {
	if next, some := z.next(); !some || next > at {
		return a, false
	}
	a = z.due[len(z.due)-1]
	z.due = z.due[:len(z.due)-1]
	return a, true
}

// ask has the pod ask for a size. replaced is what it waited for until now; nil: nothing. unchanged: it has
// that already, since it did not get what it asked for before.
func (z *resizing) ask(a ask, to *lot) (replaced *ask, unchanged bool, err error) {
	z.now, replaced = a.at, z.open[a.arrival]
	z.open[a.arrival] = &a
	if err := z.steps(line.Asked{Pod: podOf(a.arrival, to)}); err != nil {
		return replaced, false, err
	}
	if e := z.Find(uidOf(a.arrival)); e != nil && !e.Resizes() {
		delete(z.open, a.arrival)
		return replaced, true, nil
	}
	return replaced, false, nil
}

// settle has the line decide until it has nothing more to do, and reports whether a resize was done.
func (z *resizing) settle(at time.Duration) (done bool, err error) {
	z.now = at
	for again := true; again; done = done || again {
		before := z.state.Version
		if err := z.steps(line.Tick{}); err != nil {
			return done, err
		}
		again = z.state.Version != before
	}
	return done, nil
}

// steps has the line take steps, and does what it wants done.
func (z *resizing) steps(events ...line.Event) error {
	for _, e := range events {
		for _, f := range z.Step(e) {
			if err := z.do(f.Pod.UID, f.Do); err != nil {
				return err
			}
		}
	}
	return nil
}

func (z *resizing) do(uid types.UID, what any) error {
	switch f := what.(type) {
	case record.RecordResources:
		put := z.state.Pods[uid]
		put.UID, put.BootID, put.Resources = uid, boot, &f.Resources
		put.Containers = z.Find(uid).Has.Pod.Containers // what it is to hold
		if err := z.commit(allocation.Change{Put: put}); err != nil {
			return err
		}
		return z.steps(line.Answered{UID: uid, Event: record.Resized{Pod: z.state.Pods[uid]}})
	case record.DropRecord:
		if err := z.commit(allocation.Change{Drop: uid}); err != nil {
			return err
		}
		return z.steps(line.Answered{UID: uid, Event: record.Dropped{}})
	case record.SayResize:
		return z.said(uid, f)
	case record.Say:
		if f.Outcome != decide.Admit || f.Message != "" {
			return fmt.Errorf("the line says of pod %s, which runs: %s %s", uid, f.Outcome, f.Message)
		}
	case record.Assign, record.Ask, record.SayReject, record.Reread, record.Inquire:
		return fmt.Errorf("the line wants %T of pod %s, which runs", f, uid)
	}
	return nil
}

// commit records a change.
func (z *resizing) commit(c allocation.Change) error {
	z.state = z.state.With([]allocation.Change{c})
	return z.steps(line.Recorded{State: z.state})
}

// said tells what the line says of a resize, if that is news.
func (z *resizing) said(uid types.UID, f record.SayResize) error {
	arrival, err := strconv.Atoi(string(uid))
	if err != nil {
		return err
	}
	a := z.open[arrival]
	switch {
	case a == nil:
		return fmt.Errorf("the line decided on a resize of pod %s, which asked for none", uid)
	case f.Reason == v1.PodReasonDeferred && a.deferred, f.Reason == v1.PodReasonInfeasible && a.infeasible:
		return nil
	case f.Reason == "":
		delete(z.open, arrival)
	}
	if err := z.tell(answer{a, f.Resizing, z.state.Pods[uid]}); err != nil {
		return err
	}
	a.deferred = a.deferred || f.Reason == v1.PodReasonDeferred
	a.infeasible = a.infeasible || f.Reason == v1.PodReasonInfeasible
	return nil
}

// check compares what the line knows of the running pods with what they have.
func (z *resizing) check(w *world) error {
	knows := z.Ledger.Beside("", w.site.Resources())
	requests, counted := knows.Requests[allocation.Held], w.room.Others[0]
	for name, q := range counted {
		if has := requests[name]; has.Cmp(q) != 0 {
			return fmt.Errorf("of %s, the line counts %s, and pods request %s", name, has.String(), q.String())
		}
	}
	if knows.Sharing != w.room.Sharing {
		return fmt.Errorf("that pods share the node's CPUs is %v to the line, and %v", knows.Sharing, w.room.Sharing)
	}
	if cpus := knows.Taken.CPUs(); len(z.Order) != len(w.live) || !cpus.Equals(w.room.Taken.CPUs()) {
		return fmt.Errorf("the line has %d pods with the CPUs %s, and %d run with %s", len(z.Order), cpus,
			len(w.live), w.room.Taken.CPUs())
	}
	return nil
}
