package admission

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/memory"
)

// audit compares the rooms that a queue makes of its ledger with those that come of asking every
// pod: for the pods that came last, and for one more. It is called at the start of a round.
func audit(t testing.TB, q *Queue) {
	t.Helper()
	entries := q.admitter.line.Order
	if len(entries) > 10 {
		entries = entries[len(entries)-10:]
	}
	a := &q.admitter
	pass := line.NewPass(a.line, time.Now())
	all := wanting(q.admitter.line.Ledger.Resources())
	for _, e := range append(slices.Clone(entries), &line.Entry{Record: record.Record{Demand: decide.Demand{Pod: &v1.Pod{}}}}) {
		at, ahead := slices.Index(q.admitter.line.Order, e), v1.ResourceList{}
		for i, o := range q.admitter.line.Order {
			if o.Claims() && (i < at || at < 0) {
				ahead = allocation.AddRequests(ahead, o.Requests)
			}
		}
		s := a.line.Snapshot(a.line.View, a.line.Ledger)
		r := decide.Request{Demand: decide.DemandOf(all, nil, s.Rules), In: e.Pod.UID}
		s.Ahead = ahead
		want := q.recounted(e, both(func(*line.Entry) bool { return true }))
		want.Others = q.counted(e, func(o *line.Entry) bool {
			return !o.Claims() || at < 0 || slices.Index(q.admitter.line.Order, o) < at
		}).Others
		same(t, fmt.Sprintf("%q now", e.Pod.UID), s.Now(&r), want)
		if at >= 0 {
			alone := q.recounted(e, func(o *line.Entry) (counts, recorded bool) {
				if o == nil || slices.Index(q.admitter.line.Order, o) < at {
					return true, true
				}
				if !o.Claims() {
					return true, true
				}
				_, recorded = q.admitter.line.Stored.Pods[o.Pod.UID]
				return recorded, recorded
			})
			front := pass.Front(at).Beside(e.Pod.UID,
				q.admitter.line.Ledger.Resources())
			same(t, fmt.Sprintf("%q before those behind", e.Pod.UID),
				takenOnly(front.Taken), takenOnly(alone.Taken))
		}
		if !e.State.Goes() {
			same(t, fmt.Sprintf("%q later", e.Pod.UID), s.Later(&r),
				q.recounted(e, both(func(o *line.Entry) bool { return o != nil && !o.State.Goes() })))
		}
	}
	owed := sets.New[types.UID]()
	for _, o := range q.admitter.line.Stored.PendingReleases {
		owed.Insert(o.Entry())
	}
	auditRecords(t, &q.admitter.line.Pods)
	for _, uid := range a.reporter.Pods() {
		if a.line.Find(uid) == nil {
			t.Errorf("pod %s is gone, and what was said of it is kept", uid)
		}
	}
	for uid := range a.calls.last {
		if e := a.line.Find(uid); e == nil || !e.State.UnderWay() {
			t.Errorf("pod %s has a call, and none is under way", uid)
		}
	}
	for uid := range q.admitter.line.Ledger.All() {
		if owed.Has(uid) {
			continue
		}
		if _, stored := q.admitter.line.Stored.Pods[uid]; q.admitter.line.Find(uid) == nil && !stored {
			t.Errorf("pod %s is gone and in the ledger", uid)
		}
	}
}

// auditRecords compares what follows the records with what is made of them anew.
func auditRecords(t testing.TB, p *line.Pods) {
	t.Helper()
	count := 0
	for _, e := range p.Order {
		if e.State == record.Queued {
			count++
		}
	}
	if p.Queued != count {
		t.Errorf("%d pods count as queued, want %d", p.Queued, count)
	}
}

// wanting returns a pod that asks for one of each of these resources.
func wanting(resources []string) *v1.Pod {
	return podtest.New("", podtest.Containers("main "+strings.Join(resources, "=1 ")+"=1"))
}

func takenOnly(taken allocation.Holdings) allocation.Room {
	return allocation.Room{View: allocation.View{Taken: taken}}
}

// both has what is recorded of a pod count where the pod counts.
func both(counts func(*line.Entry) bool) func(*line.Entry) (counts, recorded bool) {
	return func(o *line.Entry) (bool, bool) { c := counts(o); return c, c }
}

// recounted asks every other pod that counts, and what is recorded of it where that counts; nil is one
// that only the store knows, be it as one that is gone and of which plugins are to hear.
func (q *Queue) recounted(e *line.Entry, counts func(*line.Entry) (counts, recorded bool)) allocation.Room {
	room := q.counted(e, func(o *line.Entry) bool { c, _ := counts(o); return c })
	known := map[types.UID]bool{e.Pod.UID: true}
	var held []allocation.Pod
	for _, o := range q.admitter.line.Order {
		known[o.Pod.UID] = true
		if o == e {
			continue
		}
		has, recorded := counts(o)
		if has && len(o.Has.Pod.Containers) > 0 {
			held = append(held, o.Has.Pod)
		}
		if p, ok := q.admitter.line.Stored.Pods[o.Pod.UID]; ok && recorded {
			held = append(held, p)
		}
	}
	unknown, _ := counts(nil)
	for uid, p := range q.admitter.line.Stored.Pods {
		if !known[uid] && unknown {
			held = append(held, p)
		}
	}
	for _, o := range q.admitter.line.Stored.PendingReleases {
		if unknown {
			held = append(held, allocation.Pod{Containers: map[string]allocation.Container{
				"gone": {allocation.Devices{{Resource: o.Resource, IDs: o.IDs}}},
			}})
		}
	}
	room.Taken = allocation.HoldingsOf(held...)
	return room
}

func (q *Queue) counted(e *line.Entry, counts func(*line.Entry) bool) (room allocation.Room) {
	staying, leaving, claimed := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for _, o := range q.admitter.line.Order {
		if o == e || !o.Counts() || !counts(o) {
			continue
		}
		room.Sharing = room.Sharing || o.Shares
		switch {
		case o.State.Goes():
			leaving = allocation.AddRequests(leaving, o.Requests)
		case o.Claims():
			claimed = allocation.AddRequests(claimed, o.Requests)
		default:
			staying = allocation.AddRequests(staying, o.Requests)
		}
	}
	for name, quantity := range claimed {
		if other := leaving[name]; quantity.Cmp(other) > 0 {
			leaving[name] = quantity
		}
	}
	room.Others = []v1.ResourceList{staying, leaving}
	return room
}

func same(t testing.TB, what string, got, want allocation.Room) {
	t.Helper()
	if !got.Taken.CPUs().Equals(want.Taken.CPUs()) {
		t.Errorf("%s: CPUs %s are taken, want %s", what, got.Taken.CPUs(), want.Taken.CPUs())
	}
	maps.DeleteFunc(want.Taken.Devices(), func(_ string, ids sets.Set[string]) bool {
		return len(ids) == 0
	})
	if !reflect.DeepEqual(got.Taken.Devices(), want.Taken.Devices()) {
		t.Errorf("%s: devices %v are taken, want %v", what, got.Taken.Devices(), want.Taken.Devices())
	}
	if g, w := heaps(got.Taken.Memory()), heaps(want.Taken.Memory()); !reflect.DeepEqual(g, w) {
		t.Errorf("%s: memory %v is taken, want %v", what, g, w)
	}
	if got.Sharing != want.Sharing {
		t.Errorf("%s: shared %v, want %v", what, got.Sharing, want.Sharing)
	}
	g, w := total(got.Others), total(want.Others)
	for name := range allocation.AddRequests(g, w) {
		if a, b := g[name], w[name]; a.Cmp(b) != 0 {
			t.Errorf("%s: %s of %s is requested, want %s", what, a.String(), name, b.String())
		}
	}
}

func total(lists []v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, list := range lists {
		out = allocation.AddRequests(out, list)
	}
	return out
}

// heaps are blocks with those on the same nodes made one, in order.
func heaps(blocks []memory.Block) (out []memory.Block) {
	for _, b := range blocks {
		at := slices.IndexFunc(out, func(o memory.Block) bool {
			return o.Nodes == b.Nodes && o.Resource == b.Resource
		})
		if at < 0 {
			out = append(out, b)
			continue
		}
		out[at].Size += b.Size
	}
	slices.SortFunc(out, func(a, b memory.Block) int {
		return cmp.Or(a.Nodes.Compare(b.Nodes), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// A sum that is wrong is found.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2"), false)
		d.expect("a Admit")
		right := d.queue.admitter.line.Ledger
		e, _ := right.Get("a")
		for _, wrong := range []allocation.Entry{
			{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
			{Assigned: e.Assigned},
			{Assigned: e.Assigned, Requests: e.Requests, Hold: allocation.Terminating},
		} {
			d.queue.admitter.line.Ledger = right.With("a", wrong)
			found := &finds{TB: t}
			audit(found, d.queue)
			if !found.any {
				t.Errorf("the audit does not see that the entry of a is %+v", wrong)
			}
		}
	})
}

type finds struct {
	testing.TB
	any bool
}

func (f *finds) Errorf(string, ...any) { f.any = true }
