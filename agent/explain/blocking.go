package explain

import (
	"errors"
	"fmt"
	"strings"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

const outOf = "OutOf" // the kubelet's reasons for what is only counted begin so

// blocking finds the first resource that the pod could not have.
func (c Case) blocking(r Record) *Blocking {
	var rejection *allocation.Rejection
	var unready *allocation.Unready
	switch {
	case errors.As(c.Err, &unready):
		return &Blocking{Resource: unready.Resource, Container: c.unplaced(), Why: unready.Error()}
	case !errors.As(c.Err, &rejection):
		return nil
	case rejection.Err != nil:
		return c.refusedBy(rejection.Err)
	case rejection.Reason == allocation.ReasonTopology:
		return c.misaligned(r)
	case strings.HasPrefix(rejection.Reason, outOf):
		return &Blocking{Resource: strings.TrimPrefix(rejection.Reason, outOf), Why: rejection.Message}
	}
	return nil
}

// unplaced is the first container that has no place.
func (c Case) unplaced() string {
	for container := range containersOf(c.Pod) {
		if _, placed := c.Plan.Pod.Containers[container.Name]; !placed {
			return container.Name
		}
	}
	return ""
}

// refusedBy reads an allocator's error.
func (c Case) refusedBy(err error) *Blocking {
	b := &Blocking{Resource: cpu, Container: c.unplaced(), Why: err.Error()}
	var (
		few       *deviceplugin.UnavailableError
		unhealthy *deviceplugin.UnhealthyError
		short     *cpumanager.ShortageError
	)
	switch {
	case errors.As(err, &few):
		b.Resource = few.Resource
		b.Why = fmt.Sprintf("%s still needed, %s", count(few.Requested), free(few.Available))
	case errors.As(err, &unhealthy):
		b.Resource, b.Why = unhealthy.Resource, "none of its devices is healthy"
	case errors.As(err, &short):
		b.Why = fmt.Sprintf("%s asked for, %s", count(short.Requested), free(short.Available))
	}
	return b
}

func count(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

func free(n int) string {
	if n == 0 {
		return "none is free"
	}
	return count(n) + " free"
}

// misaligned finds the resource with which the merge began to fail: by itself, or beside those
// before it.
func (c Case) misaligned(r Record) *Blocking {
	if len(c.Plan.Decisions) == 0 {
		return nil
	}
	d := c.Plan.Decisions[len(c.Plan.Decisions)-1]
	for _, o := range d.Offers {
		if !c.agree(o) {
			return &Blocking{Resource: o.Resource, Container: d.Container, Why: c.alone(d, o, r)}
		}
	}
	for i := range d.Offers {
		if !c.agree(d.Offers[:i+1]...) {
			return &Blocking{
				Resource: d.Offers[i].Resource, Container: d.Container, Why: apart(d.Offers[:i+1]),
			}
		}
	}
	return nil
}

func (c Case) agree(offers ...topology.ResourceHints) bool {
	nodes := c.Room.Machine.NodeSet()
	return c.Room.Options.Merge(c.Room.Policy, nodes, [][]topology.ResourceHints{offers}).Admit
}

// alone says why a resource finds no place that the policy allows, whatever the others do.
func (c Case) alone(d allocation.Decision, o topology.ResourceHints, r Record) string {
	need := allocation.Amount(c.Pod, o.Resource)
	for _, request := range r.Requests {
		if request.Container == d.Container {
			need = request.count(o.Resource)
		}
	}
	offered := offer(o)
	sets := append(offered.Preferred, offered.Possible...)
	if len(sets) == 0 {
		for _, s := range r.Free {
			if s.Resource == o.Resource {
				return fmt.Sprintf("%s asked for, %s", count(need), free(s.Free))
			}
		}
	}
	if c.Room.Policy == topology.SingleNUMANode {
		freest, largest := r.most(o.Resource)
		if need > largest {
			return fmt.Sprintf("%s asked for on one NUMA node, and no node has more than %d",
				count(need), largest)
		}
		return fmt.Sprintf("%s asked for on one NUMA node, and no node has more than %d free",
			count(need), freest)
	}
	return fmt.Sprintf("now %d fit only on %s; the policy insists on as few nodes as it would take "+
		"were nothing taken", need, nodes(sets[0]))
}

func (r Request) count(resource string) int {
	for _, a := range r.Resources {
		if a.Resource == resource {
			return a.Count
		}
	}
	return 0
}

// most is the largest number on one node: free, and in all.
func (r Record) most(resource string) (free, total int) {
	for _, s := range r.Free {
		if s.Resource != resource {
			continue
		}
		for _, n := range s.Nodes {
			free, total = max(free, n.Free), max(total, n.Total)
		}
	}
	return free, total
}

// apart says where each of several resources could be, which is not in one place.
func apart(offers []topology.ResourceHints) string {
	var where []string
	for _, o := range offers {
		offered := offer(o)
		sets := offered.Preferred
		if len(sets) == 0 {
			sets = offered.Possible
		}
		if len(sets) > 0 && !offered.Any {
			where = append(where, fmt.Sprintf("%s on %s", o.Resource, places(sets[:min(len(sets), 3)])))
		}
	}
	return "each could be had, but not on the same nodes: " + strings.Join(where, "; ")
}

// nodes is a node set in words.
func nodes(set string) string {
	if strings.ContainsAny(set, ",-") {
		return "nodes " + set
	}
	return "node " + set
}
