package pod

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// node is what surrounds the record of one pod: sources that want it or not, admission, a worker
// and the runtime, each of which answers in its own time.
type node struct {
	record Record
	rand   *rand.Rand
	trace  []string

	// wanted is what the source wants; nil: nothing. deleted: it wants the pod ended and kept.
	wanted  *v1.Pod
	deleted bool
	killed  bool // and desired without a break since

	// admission's: asked and not answered; has an entry; knows that the pod ends; a release under
	// way.
	asked, entered, leaves, returning bool
	submitted                         *v1.Pod
	// asksFor is the pod whose resources admission was asked for and has not decided on; nil: none. allocated
	// are the CPUs that it gave the pod last; "": it has not decided on the pod. applies: what was allocated is
	// being applied.
	asksFor   *v1.Pod
	allocated string
	applies   bool
	// late are answers of admission and of the worker on their way to the record, in order.
	late []Event

	event Event // the last one
	begun bool  // by it

	worker worker
	// there is the pod of which the runtime has something.
	there *v1.Pod
	// runs: a container of the pod runs. recorded: the runtime has something of it.
	runs, recorded bool
	// cleaned: its worker has seen to it that no cgroup and no volume is left.
	cleaned bool
	// reported are the facts of the last status, and unseen whether only an outcome of admission,
	// or of an earlier run of the agent, can have ended the pod.
	reported Facts
	unseen   bool
}

type worker string

const (
	noWorker    worker = ""
	running     worker = "running"
	completed   worker = "completed" // it ended by itself, and stays so
	terminating worker = "terminating"
	removing    worker = "removing"
)

// feed steps the record, carries out the effects and checks what must always hold.
func (n *node) feed(e Event) error {
	before := n.record
	n.event = e
	var effects []Effect
	n.record, effects = Step(n.record, e)
	line := fmt.Sprintf("%-11s %-9s ->", before.State, describeEvent(e))
	for _, f := range effects {
		line += " " + string(f.Kind)
	}
	n.trace = append(n.trace, line+" "+string(n.record.State))
	if ends := n.record.State; n.record.Killed && (ends == Terminating || ends == Terminated) {
		n.killed = true
	}
	if e.Kind == Removed || n.record.State == None {
		n.killed = false // what comes is another life of the pod
	}
	n.begun = before.State == None
	switch {
	case before.State == Deciding && n.record.State == Running && e.Kind == Admitted,
		e.Kind == Resized && before.State == Running:
		n.allocated = cpus(e.Pod)
	case n.record.State == None || n.record.State == Deciding:
		n.allocated = ""
	}
	restarted := before.Next != nil && !before.Orphan && n.record.State == Deciding
	for _, f := range effects {
		if err := n.carryOut(f); err != nil {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
		restarted = restarted != (f.Kind == Restarted)
	}
	if restarted {
		return fmt.Errorf("it began again, or it did not, and that was reported")
	}
	if silent := e.Kind == Orphaned && !e.Heard || e.Kind == Reconciled && e.News == NoNews; silent &&
		len(effects) > 0 {
		return fmt.Errorf("something follows from it")
	}
	ends := e.Kind == Ending || e.Runtime.Ended && (e.Kind == Desired || e.Kind == Reconciled)
	if ends && n.record.State == Running && n.record.Hold == Held && !n.leaves {
		return fmt.Errorf("others hear of its end, and admission does not")
	}
	return n.check()
}

func (n *node) carryOut(f Effect) error {
	switch f.Kind {
	case Submit:
		if n.recorded && !Same(n.there, f.Pod) {
			return fmt.Errorf("the runtime has another pod of that UID")
		}
		if n.returning {
			return fmt.Errorf("a release is under way")
		}
		n.asked, n.entered, n.leaves = n.asked || !n.entered, true, false
		n.submitted = f.Pod
	case AskResize:
		if n.record.State != Running {
			return fmt.Errorf("it is %s", n.record.State)
		}
		n.asksFor = f.Shown()
	case ApplyResize:
		if n.record.State != Running || !n.record.Resize.InProgress {
			return fmt.Errorf("it is %s, %+v", n.record.State, n.record.Resize)
		}
		n.applies = true
	case Leave:
		n.leaves = true
	case Release:
		if n.returning {
			return fmt.Errorf("it was asked for already")
		}
		if n.runs && n.worker != noWorker || n.runs && n.record.OnNode {
			return fmt.Errorf("something of the pod runs")
		}
		n.asked, n.returning, n.asksFor, n.applies = false, true, nil, false
	case Run:
		if n.recorded && !Same(n.there, f.Pod) {
			return fmt.Errorf("the runtime has another pod of that UID")
		}
		if n.worker == terminating || n.worker == removing {
			return fmt.Errorf("its worker is %s it", n.worker)
		}
		if n.killed {
			return fmt.Errorf("it was killed")
		}
		if n.worker == noWorker {
			n.worker, n.cleaned = running, false
		}
	case Write:
		return n.written(f)
	case Forget:
		n.reported = Facts{}
	case Terminate:
		if n.worker == noWorker || n.worker == running {
			n.cleaned = false
		}
		if n.worker != removing {
			n.worker = terminating
		}
	case Remove, Hasten:
		if n.event.FromAPI && ptr.Deref(f.Pod.DeletionGracePeriodSeconds, 30) != 0 {
			return fmt.Errorf("its grace period is waited for")
		}
		if f.Kind == Remove {
			n.worker = removing
		}
		if n.worker != removing && n.worker != noWorker {
			return fmt.Errorf("its worker is %s it", n.worker)
		}
	}
	return nil
}

// written checks the facts that a status comes with: each follows from what was reported before.
func (n *node) written(f Effect) error {
	switch f.Status {
	case StatusPending:
		n.reported = Facts{}
		n.unseen = n.begun && n.event.Runtime.Ended && Same(n.event.Pod, f.Pod) &&
			f.Pod == n.record.Pod
	case StatusAdmitted:
		n.reported.Admitted = true
	case StatusRejected:
		n.unseen = true
	case StatusCleared:
		if n.runs || n.entered || !n.cleaned {
			return fmt.Errorf("runs %t, held %t, cleaned up %t", n.runs, n.entered, n.cleaned)
		}
		n.reported.Cleared = true
	case StatusKept, StatusWaiting:
	}
	if f.Admitted != n.reported.Admitted || f.Cleared != n.reported.Cleared || f.EndedUnseen != n.unseen {
		return fmt.Errorf("%s with %+v, expected %+v", f.Status, f.Facts, n.reported)
	}
	return nil
}

func (n *node) check() error {
	switch {
	case n.worker != noWorker && n.record.State == None:
		return fmt.Errorf("a worker has a pod that nobody knows")
	case (n.asked || n.returning) && n.record.State == None:
		return fmt.Errorf("admission has a pod that nobody knows")
	case n.record.State == Running && n.allocated != "" && cpus(n.record.Pod) != n.allocated:
		return fmt.Errorf("it was allocated %s CPUs and has %s", n.allocated, cpus(n.record.Pod))
	case n.record.Wanted != nil && cpus(n.record.Wanted) == cpus(n.record.Pod):
		return fmt.Errorf("it wants what it has")
	case n.record.Wanted == nil && n.record.Resize.Pending != Why{}:
		return fmt.Errorf("it has what it wants, and a resize is pending")
	case n.record.Next != nil && n.record.State != Removing && n.record.State != Releasing:
		return fmt.Errorf("desired again in state %s", n.record.State)
	}
	return nil
}

// runtime is what the runtime has, truly.
func (n *node) runtime() Runtime {
	r := Runtime{
		Recorded: n.recorded, Running: n.runs, Ended: n.recorded && !n.runs && n.rand.IntN(2) == 0,
	}
	if n.recorded {
		r.Pod = n.there
		if n.rand.IntN(2) == 0 {
			allocated := podspec.ResourcesOf(n.there)
			r.Allocated = &allocated
		}
	}
	return r
}

// move has one of the parts do something that it may do; false: there was nothing to do for it.
func (n *node) move() (bool, error) {
	switch n.rand.IntN(14) {
	case 0:
		another := n.either()
		if r := n.record; r.Pod != nil && !Same(r.Pod, another) {
			n.killed = false // it was the other one
		}
		n.wanted, n.deleted = another, false
		return true, n.feed(Event{Kind: Desired, Pod: n.wanted, Runtime: n.runtime()})
	case 12:
		if n.wanted == nil || n.deleted {
			return false, nil
		}
		return true, n.feed(Event{Kind: Retried, Pod: n.wanted, Runtime: n.runtime()})
	case 13:
		if n.wanted == nil {
			return false, nil
		}
		e := Event{Kind: Reconciled, Pod: n.wanted, Runtime: n.runtime(),
			News: []News{NoNews, GateNews, EndNews}[n.rand.IntN(3)]}
		e.Runtime.Ended = e.News == EndNews
		return true, n.feed(e)
	case 1:
		if n.wanted == nil || n.rand.IntN(2) == 0 {
			return false, nil
		}
		marked := *n.wanted
		marked.DeletionTimestamp = &metav1.Time{}
		n.wanted, n.deleted = &marked, true
		return true, n.feed(Event{Kind: Deleted, Pod: n.wanted, Runtime: n.runtime()})
	case 2:
		pod := n.wanted
		if pod == nil {
			pod = &v1.Pod{}
		}
		n.wanted, n.deleted = nil, false
		return true, n.feed(Event{Kind: Removed, Pod: pod, FromAPI: n.rand.IntN(2) == 0})
	case 3:
		if !n.recorded && n.record.State == None { // of an earlier run of the agent
			n.recorded, n.runs, n.there = true, n.rand.IntN(2) == 0, n.either()
		}
		found := n.there
		if found == nil {
			found = n.either()
		}
		return true, n.feed(Event{Kind: Orphaned, Pod: found, Heard: n.rand.IntN(2) == 0})
	case 4:
		if n.rand.IntN(3) > 0 {
			return false, nil
		}
		return true, n.feed(Event{Kind: Killed, Why: Why{Reason: "Evicted"}})
	case 5:
		return true, n.feed(Event{Kind: Observed, Runtime: n.runtime()})
	default:
		return n.answer()
	}
}

// either returns one of two pods of the same UID, which asks for one to three CPUs.
func (n *node) either() *v1.Pod {
	return podtest.New([]string{"a", "b"}[n.rand.IntN(2)], podtest.Containers(fmt.Sprint("a cpu=", 1+n.rand.IntN(3))))
}

// answer has admission, the worker or what carries their words go on.
func (n *node) answer() (bool, error) {
	switch n.rand.IntN(4) {
	case 0:
		return n.decide(), nil
	case 1:
		return n.work(), nil
	default:
		if len(n.late) == 0 {
			return false, nil
		}
		e := n.late[0]
		n.late = n.late[1:]
		return true, n.feed(e)
	}
}

func (n *node) decide() bool {
	switch {
	case n.returning:
		n.returning, n.entered = false, false
		n.late = append(n.late, Event{Kind: Released})
	case n.asked:
		kind := []EventKind{Admitted, Waits, Refused}[n.rand.IntN(3)]
		n.asked = kind == Waits
		n.late = append(n.late, Event{Kind: kind, Pod: n.submitted, Why: Why{Reason: "Because"}})
	case n.asksFor != nil && n.rand.IntN(2) == 0:
		n.late = append(n.late, Event{Kind: Resized, Pod: n.asksFor})
		n.asksFor = nil
	case n.asksFor != nil:
		n.late = append(n.late, Event{Kind: NotResized, Pod: n.asksFor, Why: Why{Reason: "Deferred", Silent: n.rand.IntN(2) == 0}})
		n.asksFor = nil
	default:
		return false
	}
	return true
}

func (n *node) work() bool {
	switch {
	case n.applies && n.rand.IntN(2) == 0:
		e := Event{Kind: Settled}
		if n.rand.IntN(3) == 0 {
			e.Why.Message = "in use"
		}
		n.applies = e.Why.Message != ""
		n.late = append(n.late, e)
	case n.worker == running && (!n.recorded || n.rand.IntN(4) == 0):
		n.recorded, n.runs, n.there = true, true, n.record.Pod
	case n.worker == noWorker:
		return false
	case n.worker == removing:
		n.worker, n.runs, n.recorded = noWorker, false, false
		n.late = append(n.late, Event{Kind: Gone})
	case n.worker == running && n.recorded:
		n.worker, n.runs, n.cleaned = completed, false, true
		n.late = append(n.late, Event{Kind: Ending}, Event{Kind: Ended})
	case n.worker == completed:
		n.late = append(n.late, Event{Kind: Ended}) // in each round
	case n.worker == terminating:
		n.runs, n.cleaned = false, true
		n.late = append(n.late, Event{Kind: Ended})
	default:
		return false
	}
	return true
}

// rest lets all answers come until none is outstanding.
func (n *node) rest() error {
	for range 10_000 {
		busy := len(n.late) > 0 || n.asked || n.returning || n.asksFor != nil || n.applies || n.worker == removing ||
			n.worker == terminating && n.record.State == Terminating
		if !busy {
			return nil
		}
		if _, err := n.answer(); err != nil {
			return err
		}
	}
	return fmt.Errorf("the pod does not come to rest")
}

// settled checks what must hold once every answer has come.
func (n *node) converged() error {
	r := n.record
	switch {
	case n.wanted == nil && r.State != None:
		return fmt.Errorf("no source desires it")
	case n.wanted != nil && r.State == None:
		return fmt.Errorf("it is desired and has no record")
	case n.wanted != nil && r.Shown() != n.wanted:
		return fmt.Errorf("the newest desire does not count")
	case n.wanted != nil && n.deleted && r.State != Terminated:
		return fmt.Errorf("it was deleted")
	case n.killed && r.State != Terminated:
		return fmt.Errorf("it was killed")
	case r.State == Terminated && r.Hold != Free, r.State == Completed && r.Hold != Free:
		return fmt.Errorf("it ended and holds something")
	case r.State == Running && n.allocated != "" && (r.Wanted != nil) != (r.Resize.Pending.Reason != ""):
		return fmt.Errorf("admission was not asked for what it wants, or for what it has")
	case r.State == Running && r.Resize.InProgress:
		return fmt.Errorf("a resize does not come to its end")
	case r.State == Running && n.worker != running && n.worker != completed:
		return fmt.Errorf("it has no worker")
	case r.State == Releasing || r.State == Removing || r.State == Terminating:
		return fmt.Errorf("nothing is under way")
	}
	return nil
}

// A random walk of events and of answers in any order, with late ones among them, keeps what the
// package promises; and whenever all answers have come, the newest desire has won.
func TestRandomWalk(t *testing.T) {
	const steps, round = 1_000_000, 40
	seed := rand.Uint64()
	n := &node{rand: rand.New(rand.NewPCG(seed, 1))}
	fail := func(err error) {
		t.Fatalf("seed %d: %v, in state %s, holding %s\n%s", seed, err, n.record.State, n.record.Hold,
			strings.Join(n.trace[max(0, len(n.trace)-40):], "\n"))
	}
	seen, resizes := map[State]int{}, map[string]int{}
	for i := 0; i < steps; {
		moved, err := n.move()
		if err != nil {
			fail(err)
		}
		if moved {
			i++
			seen[n.record.State]++
			resizes[fmt.Sprintf("%s in progress %t", n.record.Resize.Pending.Reason, n.record.Resize.InProgress)]++
		}
		if i%round == 0 {
			if err := n.rest(); err != nil {
				fail(err)
			}
			if err := n.converged(); err != nil {
				fail(err)
			}
			n.trace = n.trace[:0]
		}
	}
	for _, what := range []string{" in progress true", "Deferred in progress false"} {
		if resizes[what] == 0 {
			t.Errorf("%q was not seen: the walk does not go there", what)
		}
	}
	for _, s := range []State{
		None, Deciding, Rejected, Running, Completed, Terminating, Terminated, Removing, Releasing,
	} {
		if seen[s] < steps/1000 {
			t.Errorf("state %q was seen %d times: the walk does not go there", s, seen[s])
		}
	}
}
