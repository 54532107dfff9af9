package decide

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/topology/podspec"
)

// Still returns the snapshot of a node at rest that runs the recorded pods. Only the assignments of
// these are known: each pod counts for its exclusive CPUs.
func (s Snapshot) Still(recorded []allocation.Pod) Snapshot {
	isolated := cpuset.New()
	if cpus := s.Hardware.CPUs; cpus != nil {
		isolated = cpus.Isolated()
	}
	for _, held := range recorded {
		requests := podspec.Requests(held.Reference())
		requests[v1.ResourceCPU] = *resource.NewQuantity(
			int64(held.CPUs().Difference(isolated).Size()), resource.DecimalSI)
		s.Ledger = s.Ledger.With(held.UID, allocation.Entry{
			Name: held.Namespace + "/" + held.Name, Assigned: allocation.HoldingsOf(held), Requests: requests,
			Rank: podspec.Rank{Critical: true}, // it is not known to be preemptable
		})
	}
	s.Ahead = s.Ledger.Requests(allocation.Claimed)
	return s
}

// Ask gets a plugin's advice.
type Ask func(allocation.Ask) ([]string, error)

// Free counts what no pod has of the resources that the node hands out by NUMA node.
func (s Snapshot) Free() []explain.Supply {
	room := s.Beside("", slices.Collect(maps.Keys(s.Inventory.Resources)))
	return explain.Free(room, explain.Resources(room))
}

// Beside returns the room that the other pods leave now, with these device resources.
func (s *Snapshot) Beside(uid types.UID, devices []string) allocation.Room {
	return s.room(s.Ledger.Beside(uid, devices), allocation.Pod{})
}

// DryRun decides on a pod as admission would if it came now. It calls no Allocate, so that it does
// not know what a plugin would refuse. claims are the pod's as far as they are known; others count for
// nothing. ask may be nil: devices are then chosen without the plugins' preferences.
func (s Snapshot) DryRun(pod *v1.Pod, claims allocation.PodClaims, ask Ask) Decision {
	var p Preferences
	var unasked []string
	demand := DemandOf(pod, s.Hardware.CPUs, s.Rules)
	for {
		d := s.Decide(&Request{Demand: demand, ResourceClaims: claims, Advice: p.Advice, Silent: p.Silent})
		if d.Outcome != Admit || d.Case.Plan.Ask == nil {
			d.Unasked = unasked
			return d
		}
		wanted := *d.Case.Plan.Ask
		if ask == nil {
			unasked = append(unasked, wanted.AskKey.Resource)
			p = p.Without(wanted.AskKey.Resource)
			continue
		}
		answer, err := ask(wanted)
		p = p.Answered(wanted.AskKey, answer, err)
	}
}

// Record explains what would be decided.
func (d Decision) Record() explain.Record {
	r := d.Case.Judged(explain.Verdict{
		Outcome: string(d.Outcome), Reason: d.Reason, Message: d.Message,
	})
	r.Subject.DryRun = true
	return r
}

// With returns the snapshot once the pod has what was decided.
func (s Snapshot) With(d Decision) Snapshot {
	pod := DemandOf(d.Pod, s.Hardware.CPUs, s.Rules)
	// The pod counts by itself, even if the ledger has a pod with its UID.
	key := types.UID("decided " + string(d.Pod.UID))
	for _, taken := s.Ledger.Get(key); taken; _, taken = s.Ledger.Get(key) {
		key += "'"
	}
	s.Ledger = s.Ledger.With(key, allocation.Entry{
		Assigned: allocation.HoldingsOf(d.Held), Requests: pod.Requests, Shares: pod.Shares,
		Ports: pod.Ports, Rank: pod.Rank,
	})
	return s
}
