package explain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// refusal is a case that has no place.
type refusal struct {
	Case
	tried Attempt
}

// blocking returns the first resource that the pod could not have. If the pod has a place without
// one of its init containers, the reason says so.
func (r refusal) blocking() *Blocking {
	b := r.short()
	if init := r.Plan.InWay; b != nil && init != "" && b.Container != init {
		b.Why += fmt.Sprintf("; there is a place without init container %s, and none for that beside it",
			init)
	}
	return b
}

func (r refusal) short() *Blocking {
	var rejection *allocation.Rejection
	var unready *allocation.Unready
	switch {
	case errors.As(r.Err, &unready):
		return &Blocking{Resource: unready.Resource, Container: r.unplaced(), Why: unready.Error()}
	case !errors.As(r.Err, &rejection):
		return nil
	case rejection == r.Plan.Ahead: // there is a place for what is assigned
		short := r.Room.Shortages(r.Pod)
		return r.outOf(string(short[0].Resource), short[0].Message())
	case rejection.Err != nil:
		return r.refusedBy(rejection.Err)
	case rejection.Reason == allocation.ReasonTopology:
		return r.misaligned()
	case rejection.Short != "":
		return r.outOf(string(rejection.Short), rejection.Message)
	}
	return nil
}

// outOf describes a lack of a resource that is only counted.
func (r refusal) outOf(name, message string) *Blocking {
	b := &Blocking{Resource: name, Why: message}
	for _, short := range r.Room.Shortages(r.Pod) {
		if string(short.Resource) != name {
			continue
		}
		left := max(short.Capacity-short.Used, 0)
		b.Why = fmt.Sprintf("%s requested, %s of %s not requested by other pods",
			counted(name, short.Requested), counted(name, left), counted(name, short.Capacity))
		if short.Resource == v1.ResourcePods {
			b.Why = fmt.Sprintf("the node takes %d pods and has %d", short.Capacity, short.Used)
		}
	}
	return b
}

// counted returns an amount in the units of the kubelet's message.
func counted(name string, n int64) string {
	if name == cpu {
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	}
	return number(name, int(n))
}

// unplaced returns the first container without a place; "": the pod as a whole.
func (r refusal) unplaced() string {
	if _, placed := r.Plan.Pod.Containers[allocation.WholePod]; !placed && r.Room.Pools(r.Pod) {
		return allocation.WholePod
	}
	for container := range podspec.Containers(r.Pod) {
		if _, placed := r.Plan.Pod.Containers[container.Name]; !placed {
			return container.Name
		}
	}
	return ""
}

// refusedBy explains an allocator's error.
func (r refusal) refusedBy(err error) *Blocking {
	b := &Blocking{Resource: r.Room.CPUResource(), Container: r.unplaced(), Why: err.Error()}
	var (
		few       *devicemanager.UnavailableError
		unhealthy *devicemanager.UnhealthyError
		short     *cpumanager.ShortageError
		isolated  *cpumanager.IsolatedShortageError
		threads   *cpumanager.SMTAlignmentError
		pool      *cpumanager.EmptyPoolError
		chosen    *allocation.ChosenError
		ofPod     *allocation.EmptyPodPoolError
	)
	switch {
	case errors.As(err, &chosen):
		b.Resource, b.Container = chosen.Resource, chosen.Container
	case errors.As(err, &few):
		b.Resource = few.Resource
		b.Why = fmt.Sprintf("%d needed, %s", few.Requested, free(b.Resource, few.Available))
		if few.Cordoned > 0 {
			b.Why += fmt.Sprintf(", %d cordoned", few.Cordoned)
		}
		if few.Claimed != "" {
			b.Why += "; " + few.Claimed
		}
	case errors.As(err, &unhealthy):
		b.Resource, b.Why = unhealthy.Resource, "none of its devices is healthy"
		if unhealthy.None {
			b.Why = "its device plugin lists no devices"
		}
	case errors.As(err, &short):
		b.Why = fmt.Sprintf("%d needed, %s", short.Requested, free(cpu, short.Available))
	case errors.As(err, &isolated):
		b.Why = fmt.Sprintf("%d needed, %s of the %d that the node isolates", isolated.Requested,
			free(b.Resource, isolated.Available), isolated.Isolated.Size())
	case errors.As(err, &threads) && !threads.Shortage:
		b.Why = fmt.Sprintf("whole cores only are given out (%s), and %d CPUs are no "+
			"number of whole cores, which have %d CPUs each", r.wholeCoresBy(), threads.Requested,
			threads.CPUsPerCore)
	case errors.As(err, &threads):
		b.Why = fmt.Sprintf("whole cores only are given out (%s): %d CPUs asked "+
			"for, %s in cores that nobody uses a part of", r.wholeCoresBy(),
			threads.Requested, free(cpu, threads.Available))
	case errors.As(err, &pool):
		b.Resource, b.Container = cpu, ""
		b.Why = "no CPU would be left for containers that share CPUs, which " +
			"strict-cpu-reservation keeps off the reserved ones"
	case errors.As(err, &ofPod):
		b.Resource, b.Container = string(ofPod.Resource), ""
	case memory.Refused(err):
		return r.refusedMemory(err)
	}
	return b
}

// wholeCoresBy returns what requires whole cores: the pod's annotation, or the node's option.
func (r refusal) wholeCoresBy() string {
	if r.Room.WholeCores {
		return "the annotation " + podspec.AnnotationWholeCores
	}
	return cpumanager.OptionFullPCPUsOnly
}

// misaligned finds the resource at which the merge began to fail: by itself, or together with the
// resources before it.
func (r refusal) misaligned() *Blocking {
	if len(r.Plan.Decisions) == 0 {
		return nil
	}
	d := r.Plan.Decisions[len(r.Plan.Decisions)-1]
	for _, o := range d.Offers {
		if !r.agree(o) {
			return &Blocking{Resource: o.Resource, Container: d.Container, Why: r.alone(d, o)}
		}
	}
	for i := range d.Offers {
		if !r.agree(d.Offers[:i+1]...) {
			return &Blocking{
				Resource: d.Offers[i].Resource, Container: d.Container,
				Why: r.apart(d.Offers[:i+1]), Apart: true,
			}
		}
	}
	return nil
}

func (r refusal) agree(offers ...topology.ResourceHints) bool {
	nodes := r.Room.Machine.NodeSet()
	return r.Room.Options.Merge(r.Room.Policy, nodes, [][]topology.ResourceHints{offers}).Admit
}

// alone says why a resource by itself has no place that the policy allows.
func (r refusal) alone(d allocation.Decision, o topology.ResourceHints) string {
	need := allocation.Amount(r.Pod, o.Resource, r.Room.Rules)
	for _, request := range r.tried.Requests {
		if request.Container == d.Container {
			need = request.count(o.Resource)
		}
	}
	offered := offer(o)
	sets := append(offered.Preferred, offered.Possible...)
	if len(sets) > 0 && r.Room.Chosen[d.Container][o.Resource] != nil {
		return "those that were chosen are on " + nodes(sets[0])
	}
	supply := r.tried.supply(o.Resource)
	asked := number(o.Resource, need)
	if len(sets) == 0 && supply.Free < need {
		return asked + " asked for, " + free(o.Resource, supply.Free)
	}
	if len(sets) == 0 {
		return asked +
			" asked for, and no NUMA nodes have that much free that may be used together" +
			supply.grouped()
	}
	if r.Room.Policy == topology.SingleNUMANode {
		freest, largest := supply.most()
		switch {
		case need > largest:
			return fmt.Sprintf("%s asked for on one NUMA node, and the largest has %s", asked,
				number(o.Resource, largest))
		case need > freest:
			return fmt.Sprintf("%s asked for on one NUMA node, and no node has more than %s free",
				asked, number(o.Resource, freest))
		}
		return asked +
			" asked for on one NUMA node, and no node with that much free can be used alone" +
			supply.grouped()
	}
	return fmt.Sprintf("%s free only on %s together; policy %s wants it on as few NUMA nodes as "+
		"an empty machine would need", asked, nodes(sets[0]), r.Room.Policy)
}

func (r Request) count(resource string) int {
	for _, a := range r.Resources {
		if a.Resource == resource {
			return max(a.Count, a.PaddedTo)
		}
	}
	return 0
}

// most returns the highest numbers on one node: free, and in total.
func (s Supply) most() (free, total int) {
	for _, n := range s.Nodes {
		free, total = max(free, n.Free), max(total, n.Total)
	}
	return free, total
}

// apart says where each of several resources could be placed, if they have no place in common. It
// skips resources that could be placed on any node.
func (r refusal) apart(offers []topology.ResourceHints) string {
	var where []string
	for _, o := range offers {
		offered := offer(o)
		sets := offered.Preferred
		if len(sets) == 0 {
			sets = offered.Possible
		}
		if len(sets) > 0 && !offered.Any && !r.everywhere(o) {
			few := places(sets[:min(len(sets), wideShown)])
			where = append(where, fmt.Sprintf("%s on %s", label(o.Resource), few))
		}
	}
	return "there is enough of each, but not on the same NUMA nodes: " + strings.Join(where, ", ")
}

// everywhere reports whether each single node is a preferred place.
func (r refusal) everywhere(o topology.ResourceHints) bool {
	alone := map[topology.NodeSet]bool{}
	for _, h := range o.Hints {
		if h.Preferred && !h.Any && h.Nodes.Len() == 1 {
			alone[h.Nodes] = true
		}
	}
	return len(alone) == r.Room.Machine.NodeSet().Len()
}

// nodes returns a node set with "node" or "nodes" before it.
func nodes(set string) string {
	if strings.ContainsAny(set, ",-") {
		return "nodes " + set
	}
	return "node " + set
}
