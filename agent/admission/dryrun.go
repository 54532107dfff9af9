package admission

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/topology/podspec"
)

// Snapshot is all that admission would decide on one more pod with, at one moment. It is never
// written to: placing a pod gives another one.
type Snapshot struct {
	handlers []Handler
	// all is the room beside every pod, later that beside those that do not terminate.
	all, later allocation.Room
	// patient: a pod that lacks something may wait for it.
	patient bool
}

// Snapshot is what a pod submitted now would be decided with. It waits for Run, which does not
// wait for it.
func (q *Queue) Snapshot(ctx context.Context) (Snapshot, error) {
	reply := make(chan Snapshot, 1)
	q.inbox.Put(message{kind: look, reply: reply})
	select {
	case s := <-reply:
		return s, nil
	case <-ctx.Done():
		return Snapshot{}, fmt.Errorf("wait for admission: %w", ctx.Err())
	}
}

// show answers those who asked for a snapshot, after the pods that were submitted before.
func (q *Queue) show() {
	for _, reply := range q.looking {
		reply <- q.snapshot()
	}
	q.looking = nil
}

func (q *Queue) snapshot() Snapshot {
	next := &entry{demand: demand{pod: &v1.Pod{}}}
	requests, _ := q.stakes.others(stake{})
	return Snapshot{
		handlers: q.cfg.Handlers, patient: q.cfg.Wait > 0,
		all:   q.present(next, holding{}, requests[claiming]),
		later: q.future(next, holding{}),
	}
}

// Still is the snapshot of a node at rest, on which run the pods that the store has. Of those only
// what is assigned to them is known: they count for the CPUs that are their own.
func Still(cfg Config) Snapshot {
	q := New(cfg)
	q.follow()
	q.look()
	s := q.snapshot()
	for _, held := range cfg.Store.State().List() {
		requests := podspec.Requests(podOf(held))
		requests[v1.ResourceCPU] = *resource.NewQuantity(int64(held.CPUs().Size()),
			resource.DecimalSI)
		s.all.Others = append(s.all.Others, requests)
	}
	s.later = s.all
	return s
}

// Decision is what admission would say of a pod.
type Decision struct {
	Result
	// Case is the plan and what it was made from; Held is what the pod would hold.
	Case explain.Case
	Held allocation.Pod
	// Unasked are the resources whose plugins have a preference that was not asked for.
	Unasked []string
}

// Ask gets a plugin's advice.
type Ask func(allocation.Ask) ([]string, error)

// Decide says what admission would. The plugins' Allocate is not called, so that what a plugin
// refuses is not known. ask may be nil: then devices are chosen as if the plugins had not
// answered.
func (s Snapshot) Decide(pod *v1.Pod, ask Ask) Decision {
	d := Decision{
		Result: Result{Pod: pod, Outcome: Admit},
		Case:   explain.Case{Room: s.all, Pod: pod},
	}
	for _, h := range s.handlers {
		if r := h(pod); r != nil {
			d.Case.Err = r
			return d.refused(Reject, r.Reason, r.Message)
		}
	}
	plan, advice, err := s.plan(&d, ask)
	d.Case.Plan, d.Case.Err = plan, err
	if err == nil {
		d.Held = plan.Pod
		return d
	}
	j := prospects{s.all, s.later}.judge(pod, advice, err)
	if j.final || !s.patient {
		return d.refused(Reject, j.rejection.Reason, j.rejection.Message)
	}
	return d.refused(Wait, j.reason, j.message)
}

// plan asks for advice until no more is wanted. A plugin that did not answer is not asked again.
func (s Snapshot) plan(d *Decision, ask Ask) (allocation.Plan, allocation.Advice, error) {
	advice := allocation.Advice{}
	plan, err := s.all.Plan(d.Pod, advice)
	silent := map[string]bool{}
	for ; err == nil && plan.Ask != nil; plan, err = s.all.Plan(d.Pod, advice) {
		key := plan.Ask.AskKey
		switch {
		case silent[key.Resource]:
			advice[key] = nil
		case ask == nil:
			silent[key.Resource], advice[key] = true, nil
			d.Unasked = append(d.Unasked, key.Resource)
		default:
			answer, err := ask(*plan.Ask)
			silent[key.Resource], advice[key] = err != nil && mayPass(err), answer
		}
	}
	if len(advice) > 0 && err != nil {
		if without, none := unadvised(s.all, d.Pod); none == nil {
			return without, advice, nil
		}
	}
	return plan, advice, err
}

func (d Decision) refused(outcome Outcome, reason, message string) Decision {
	d.Outcome, d.Reason, d.Message = outcome, reason, message
	return d
}

// Record is the explanation of the decision.
func (d Decision) Record() explain.Record {
	r := d.Case.Judged(explain.Verdict{
		Outcome: string(d.Outcome), Reason: d.Reason, Message: d.Message,
	})
	r.DryRun = true
	return r
}

// With is the snapshot once the pod has what was decided.
func (s Snapshot) With(d Decision) Snapshot {
	demand := demandOf(d.Pod)
	s.all, s.later = with(s.all, demand, d.Held), with(s.later, demand, d.Held)
	return s
}

func with(room allocation.Room, d demand, held allocation.Pod) allocation.Room {
	room.Taken = room.Taken.With(held)
	room.Others = append(slices.Clip(room.Others), d.requests)
	room.Sharing = room.Sharing || d.shares
	return room
}
