package admission

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/topology/podspec"
)

// Still is the snapshot of a node at rest, on which run the pods that the store has. Of those only
// what is assigned to them is known: they count for the CPUs that are their own.
func Still(cfg Config) Snapshot {
	var l allocation.Ledger
	isolated := cpuset.New()
	if h := cfg.Hardware(); h.CPUs != nil {
		isolated = h.CPUs.Isolated()
	}
	for _, held := range cfg.Store.State().List() {
		requests := podspec.Requests(held.Reference())
		requests[v1.ResourceCPU] = *resource.NewQuantity(
			int64(held.CPUs().Difference(isolated).Size()), resource.DecimalSI)
		l = l.With(held.UID, allocation.Entry{
			Assigned: allocation.TakenBy(held), Requests: requests,
			Rank: podspec.Rank{Critical: true}, // for all that is known
		})
	}
	return cfg.snapshot(cfg.view(), l)
}

// Ask gets a plugin's advice.
type Ask func(allocation.Ask) ([]string, error)

// Free counts what no pod has of what the node hands out by NUMA node.
func (s Snapshot) Free() []explain.Supply {
	room := s.beside("", slices.Collect(maps.Keys(s.inventory.Resources)))
	return explain.Free(room, explain.Resources(room))
}

// beside is the room that the other pods leave now, of some devices.
func (s *Snapshot) beside(uid types.UID, devices []string) allocation.Room {
	return s.room(s.ledger.Beside(uid, devices), allocation.Pod{})
}

// Decide says what admission would. The plugins' Allocate is not called, so that what a plugin
// refuses is not known. ask may be nil: then devices are chosen as if the plugins had not
// answered.
func (s Snapshot) Decide(pod *v1.Pod, ask Ask) Decision {
	r := request{pod: pod}
	var p preferences
	var unasked []string
	for {
		r.advice, r.silent = p.advice, p.silent
		d := decide(&s, &r)
		if d.Outcome != Admit || d.Case.Plan.Ask == nil {
			d.Unasked = unasked
			return d
		}
		wanted := *d.Case.Plan.Ask
		if ask == nil {
			unasked = append(unasked, wanted.AskKey.Resource)
			p = p.without(wanted.AskKey.Resource)
			continue
		}
		answer, err := ask(wanted)
		p = p.answered(wanted.AskKey, answer, err)
	}
}

// Record is the explanation of what would be decided.
func (d Decision) Record() explain.Record {
	r := d.Case.Judged(explain.Verdict{
		Outcome: string(d.Outcome), Reason: d.Reason, Message: d.Message,
	})
	r.Subject.DryRun = true
	return r
}

// With is the snapshot once the pod has what was decided.
func (s Snapshot) With(d Decision) Snapshot {
	pod := demandOf(d.Pod, s.hardware.CPUs)
	// It is a pod by itself, even where one of that UID is in the ledger already.
	key := types.UID("decided " + string(d.Pod.UID))
	for _, taken := s.ledger.Get(key); taken; _, taken = s.ledger.Get(key) {
		key += "'"
	}
	s.ledger = s.ledger.With(key, allocation.Entry{
		Assigned: allocation.TakenBy(d.Held), Requests: pod.requests, Shares: pod.shares,
		Ports: pod.ports, Rank: pod.rank,
	})
	return s
}
