package rig

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// recount computes an Outcome from the stream, the machine and the list of decisions alone, as
// simply as possible.
type recount struct {
	site   *Site
	policy Policy
	stream Stream
	list   []Decision
}

func (c recount) outcome() Outcome {
	out := Outcome{Policy: c.policy.Name, Reasons: []Reason{}}
	out.Pods.Arrived = len(c.stream.Arrivals)
	for _, s := range c.stream.Shapes {
		out.Shapes = append(out.Shapes, ShapeCount{Name: s.Name})
	}
	for _, a := range c.stream.Arrivals {
		out.Shapes[a.Shape].Arrived++
	}
	running, waiting, waits := 0, map[int]bool{}, 0.0
	nodes, distances := 0, 0.0
	for _, d := range c.list {
		a := c.stream.Arrivals[d.Arrival]
		switch d.Kind {
		case Admitted:
			out.Pods.Admitted++
			out.Shapes[a.Shape].Admitted++
			running++
			out.Pods.Most = max(out.Pods.Most, running)
			if waiting[d.Arrival] {
				out.Pods.Waited++
				waits += (d.At - a.At).Seconds()
			}
			delete(waiting, d.Arrival)
			n, distance := c.place(&out, a.Shape, d.Held)
			nodes += n
			distances += distance
		case Rejected:
			delete(waiting, d.Arrival)
			out.Pods.Rejected++
			i := slices.IndexFunc(out.Reasons, func(r Reason) bool {
				return r.Reason == d.Reason.Reason && r.Of == d.Reason.Of
			})
			if i < 0 {
				i = len(out.Reasons)
				out.Reasons = append(out.Reasons, d.Reason)
			}
			out.Reasons[i].Count++
		case Waits:
			waiting[d.Arrival] = true
		case Left:
			running--
		}
	}
	of := func(part, all int) float64 {
		if all == 0 {
			return 0
		}
		return math.Round(float64(part)/float64(all)*1e4) / 1e4
	}
	out.Pods.AdmittedShare = of(out.Pods.Admitted, out.Pods.Arrived)
	out.Placement.AlignedShare = of(out.Placement.Aligned, out.Placement.Placed)
	for i, s := range out.Shapes {
		out.Shapes[i].AdmittedShare = of(s.Admitted, s.Arrived)
	}
	slices.SortFunc(out.Reasons, func(a, b Reason) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Reason+" "+a.Of, b.Reason+" "+b.Of)
	})
	out.Pods.Waiting = len(waiting)
	if out.Pods.Waited > 0 {
		out.Pods.MeanWait = rounded(waits / float64(out.Pods.Waited))
	}
	if n := float64(out.Placement.Placed); n > 0 {
		out.Placement.MeanNodes = rounded(float64(nodes) / n)
		out.Placement.MeanDistance = rounded(distances / n)
	}
	return out
}

// place counts one admitted pod: its nodes and their distances.
func (c recount) place(out *Outcome, shape int, held []Holding) (nodes int, distance float64) {
	p, m := &out.Placement, c.site.Machine
	c.countByCPUs(&p.ByCPUs, c.stream.Shapes[shape].Pod, held)
	all := map[topology.NodeID]bool{}
	for _, h := range held {
		own := map[topology.NodeID]bool{}
		cpus, err := cpuset.Parse(h.CPUs)
		if err != nil {
			panic(err)
		}
		for _, id := range cpus.List() {
			cpu, _ := m.CPU(id)
			own[cpu.Node], all[cpu.Node] = true, true
		}
		memory, err := topology.ParseNodeSet(h.MemoryNodes)
		if err != nil {
			panic(err)
		}
		for _, n := range memory.IDs() {
			own[n], all[n] = true, true
		}
		devices := maps.Clone(h.Claims)
		if devices == nil {
			devices = map[string][]string{}
		}
		maps.Copy(devices, h.Devices)
		for resource, ids := range devices {
			for _, d := range c.site.Inventory.Resources[resource].Devices {
				if slices.Contains(ids, d.ID) {
					for _, n := range d.Nodes.IDs() {
						own[n], all[n] = true, true
					}
				}
			}
		}
		pairs, near := c.pairs(devices)
		p.Pairs, p.SwitchPairs = p.Pairs+pairs, p.SwitchPairs+near
		if h.Container == "" {
			continue // the pool, of which containers have parts
		}
		if len(own) > 0 {
			p.PlacedContainers++
		}
		if len(own) == 1 {
			p.AlignedContainers++
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	p.Placed++
	for len(p.Spread) < len(all) {
		p.Spread = append(p.Spread, 0)
	}
	p.Spread[len(all)-1]++
	if len(all) == 1 {
		p.Aligned++
		out.Shapes[shape].Aligned++
	}
	sum, pairs := 0.0, 0.0
	for a := range all {
		for b := range all {
			if a == b && len(all) > 1 {
				continue
			}
			sum, pairs = sum+float64(m.Distance(a, b)), pairs+1
			p.MostDistance = max(p.MostDistance, m.Distance(a, b))
		}
	}
	return len(all), sum / pairs
}

// countByCPUs counts containers by whether they have CPUs, and by what they ask for where the pod has some.
func (c recount) countByCPUs(out *ByCPUs, pod *v1.Pod, held []Holding) {
	cpusOf := map[string]string{}
	for _, h := range held {
		cpusOf[h.Container] = h.CPUs
	}
	for _, one := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		r := one.Resources
		alone := !r.Limits.Cpu().IsZero() && !r.Limits.Memory().IsZero() &&
			r.Limits.Cpu().Equal(*r.Requests.Cpu()) && r.Limits.Memory().Equal(*r.Requests.Memory()) &&
			r.Limits.Cpu().MilliValue()%1000 == 0
		switch {
		case cpusOf[one.Name] == "":
			out.Node++
		case cpusOf[""] != "" && !alone:
			out.Pod++
		default:
			out.Own++
		}
	}
}

// pairs compares each device with each one of the other resources.
func (c recount) pairs(devices map[string][]string) (all, near int) {
	names := slices.Sorted(maps.Keys(devices))
	for i, a := range names {
		for _, b := range names[i+1:] {
			var had [2][]topology.PCIDevice
			for at, ids := range [2][]string{devices[a], devices[b]} {
				for _, id := range ids {
					if d, here := c.site.Machine.PCIDevice(id); here && d.Path != "" {
						had[at] = append(had[at], d)
					}
				}
			}
			all += min(len(had[0]), len(had[1]))
			for _, d := range had[0] {
				other := slices.IndexFunc(had[1], func(o topology.PCIDevice) bool {
					return topology.ClosenessOf(d, o) == topology.SameSwitch
				})
				if other >= 0 {
					near, had[1] = near+1, slices.Delete(had[1], other, other+1)
				}
			}
		}
	}
	return all, near
}

// averages integrates, event by event, the share of a resource that running pods request, and the
// fragmentation of CPUs.
func (c recount) averages(resource string) (used, fragmentation float64) {
	end := c.stream.Arrivals[len(c.stream.Arrivals)-1].At
	free := map[topology.NodeID]int{}
	largest := 0
	for _, n := range c.site.Machine.Nodes() {
		free[n.ID] = c.site.Machine.CPUsOfNode(n.ID).Difference(c.site.ReservedCPUs).Size()
		largest = max(largest, free[n.ID])
	}
	requested, last := 0.0, time.Duration(0)
	for _, d := range append(slices.Clone(c.list), Decision{At: end}) {
		length := float64(min(d.At, end) - last)
		total, most := 0, 0
		for _, n := range free {
			total, most = total+n, max(most, n)
		}
		used += requested * length
		if best := min(total, largest); best > 0 {
			fragmentation += (1 - float64(most)/float64(best)) * length
		}
		last = min(d.At, end)
		sign := map[string]float64{Admitted: 1, Left: -1}[d.Kind]
		if sign == 0 {
			continue
		}
		shape := c.stream.Shapes[c.stream.Arrivals[d.Arrival].Shape]
		q := podspec.Requests(shape.Pod)[v1.ResourceName(resource)]
		for _, claim := range shape.Claims {
			q.Add(*apiresource.NewQuantity(claim.counts()[resource], apiresource.DecimalSI))
		}
		has := c.site.Allocatable[v1.ResourceName(resource)]
		share := q.AsApproximateFloat64() / has.AsApproximateFloat64()
		if r, ok := c.site.Inventory.Resources[resource]; ok {
			share = q.AsApproximateFloat64() / float64(len(r.Devices))
		}
		requested += sign * share
		all := cpuset.New() // init containers hand theirs to later containers
		for _, h := range d.Held {
			cpus, err := cpuset.Parse(h.CPUs)
			if err != nil {
				panic(err)
			}
			all = all.Union(cpus)
		}
		for _, id := range all.List() {
			cpu, _ := c.site.Machine.CPU(id)
			free[cpu.Node] -= int(sign)
		}
	}
	return used / float64(end), fragmentation / float64(end)
}

// memoryFragmentation integrates the fragmentation of placed memory: a block on several nodes is
// free on none of them, and these nodes serve no request for a single node.
func (c recount) memoryFragmentation() (sum float64) {
	end := c.stream.Arrivals[len(c.stream.Arrivals)-1].At
	free, shared := map[topology.NodeID]float64{}, map[topology.NodeID]int{}
	total, largest := 0.0, 0.0
	for _, n := range c.site.Machine.Nodes() {
		has := float64(n.MemoryBytes) - float64(c.site.ReservedMemory[n.ID]["memory"])
		for _, pool := range n.HugePages {
			has -= float64(pool.PageBytes * pool.Count)
		}
		free[n.ID] = has
		total, largest = total+has, max(largest, has)
	}
	last := time.Duration(0)
	for _, d := range append(slices.Clone(c.list), Decision{At: end}) {
		most := 0.0
		for n, bytes := range free {
			if shared[n] == 0 {
				most = max(most, bytes)
			}
		}
		if best := min(total, largest); best > 0 {
			sum += (1 - most/best) * float64(min(d.At, end)-last)
		}
		last = min(d.At, end)
		sign := map[string]int{Admitted: 1, Left: -1}[d.Kind]
		pooled := slices.ContainsFunc(d.Held, func(h Holding) bool { return h.Container == "" && h.Memory != nil })
		for _, h := range d.Held {
			if pooled && h.Container != "" {
				continue // it has a part of the pool
			}
			nodes, err := topology.ParseNodeSet(h.MemoryNodes)
			if err != nil {
				panic(err)
			}
			total -= float64(sign) * float64(h.Memory["memory"])
			for _, n := range nodes.IDs() {
				if nodes.Len() == 1 {
					free[n] -= float64(sign) * float64(h.Memory["memory"])
				} else {
					shared[n] += sign
				}
			}
		}
	}
	return sum / float64(end)
}
