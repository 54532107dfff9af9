package rig

import (
	"fmt"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// world is a machine with its running pods. Each change updates what is taken, which makes a million
// admissions fast; check sums it up again.
type world struct {
	site   *Site
	ledger allocation.Ledger
	room   allocation.Room // beside the ledger's pods
	live   map[int]tenant  // by arrival
	// idle holds the CPUs that may be given out. It is kept apart from the ledger, to check it.
	idle map[int]bool
	// published lists the devices that claims can have, by class. Claims of running pods have claimed.
	published map[string][]claim.Device
	claimed   sets.Set[deviceKey]
}

// tenant is a running pod.
type tenant struct {
	shape *lot
	held  allocation.Pod
}

// lot is a shape with values that are computed once. Rules are the pod's own.
type lot struct {
	Shape
	rules    topology.Rules
	requests v1.ResourceList
	shares   bool
	picks    []pick
	pool     pool
}

// newLots computes the lots of shapes on a node of this view.
func newLots(shapes []Shape, node allocation.View) []*lot {
	out := make([]*lot, len(shapes))
	for i, s := range shapes {
		// a choice that pods may not make stays the policy's
		rules, _ := podspec.Rules(s.Pod, node.Rules)
		out[i] = &lot{
			Shape: s, rules: rules, requests: allocation.Requests(node.CPUs, s.Pod, rules),
			shares: cpumanager.Shares(s.Pod, rules), picks: picksOf(s.Claims),
			pool: poolOf(s.Pod, node, rules),
		}
	}
	return out
}

func newWorld(site *Site, p Policy) (*world, error) {
	w := &world{
		site: site, live: map[int]tenant{}, idle: map[int]bool{},
		published: publishedBy(site), claimed: sets.New[deviceKey](),
	}
	w.setIdle(site.Machine.Online().Difference(site.ReservedCPUs), true)
	view := allocation.View{Machine: site.Machine, Inventory: site.Inventory, Rules: p.Rules}
	if p.Closest {
		view.Options = topology.PreferClosest(site.Machine)
	}
	if !p.SharedCPUs {
		static, err := cpumanager.NewStatic(site.Machine, site.ReservedCPUs, p.CPUOptions)
		if err != nil {
			return nil, err
		}
		if view.CPUs, err = static.Isolating(site.IsolatedCPUs); err != nil {
			return nil, err
		}
	}
	if p.PlacedMemory {
		static, err := memory.New(site.Machine, site.ReservedMemory)
		if err != nil {
			return nil, err
		}
		view.Memory = static
	}
	w.room = allocation.Room{View: view, Allocatable: site.Allocatable}
	w.follow(allocation.Ledger{})
	return w, nil
}

// follow updates the room to another ledger.
func (w *world) follow(next allocation.Ledger) {
	w.ledger = next
	taken := next.Beside("", w.site.Resources())
	w.room.Taken, w.room.Sharing = taken.Taken, taken.Sharing
	w.room.Others = []v1.ResourceList{taken.Requests[allocation.Held]}
}

func uidOf(arrival int) types.UID { return types.UID(strconv.Itoa(arrival)) }

// roomOf returns the room of a pod whose claims have these devices.
func (w *world) roomOf(l *lot, claims []claim.Use) allocation.Room {
	room := w.room
	room.Rules, room.Claims.Uses = l.rules, claims
	return room
}

// admit gives the pod of an arrival what was planned for it. The error names the rule that the plan
// breaks.
func (w *world) admit(arrival int, l *lot, plan allocation.Plan) error {
	if err := w.checkPlan(l, plan); err != nil {
		return err
	}
	w.live[arrival] = tenant{shape: l, held: plan.Pod}
	w.setIdle(plan.Pod.CPUs(), false)
	w.claimed = w.claimed.Union(claimsOf(plan.Pod))
	w.follow(w.ledger.With(uidOf(arrival), allocation.Entry{
		Assigned: allocation.HoldingsOf(plan.Pod), Requests: l.requests, Shares: l.shares,
	}))
	return nil
}

// leave releases what the pod of an arrival holds.
func (w *world) leave(arrival int) tenant {
	t := w.live[arrival]
	delete(w.live, arrival)
	w.setIdle(t.held.CPUs(), true)
	w.claimed = w.claimed.Difference(claimsOf(t.held))
	w.follow(w.ledger.Without(uidOf(arrival)))
	return t
}

// resize gives the pod of an arrival what was decided for it.
func (w *world) resize(arrival int, to *lot, held allocation.Pod) (before, after tenant, err error) {
	before = w.leave(arrival)
	err = w.admit(arrival, to.keeping(before.shape), allocation.Plan{Pod: held})
	return before, w.live[arrival], err
}

func (w *world) setIdle(cpus cpuset.CPUSet, idle bool) {
	for _, id := range cpus.UnsortedList() {
		w.idle[id] = idle
	}
}

// checkPlan checks that the plan takes only what is free, and as much as was asked for.
func (w *world) checkPlan(l *lot, plan allocation.Plan) error {
	cpus := plan.Pod.CPUs()
	if w.room.CPUs == nil && !cpus.IsEmpty() {
		return fmt.Errorf("%s got CPUs %s of its own and the policy gives out none", l.Name, cpus)
	}
	for _, id := range cpus.UnsortedList() {
		if !w.idle[id] {
			return fmt.Errorf("%s got CPU %d, which is taken, reserved, offline or not there",
				l.Name, id)
		}
	}
	isolated := w.site.IsolatedCPUs
	if !podspec.CPURules(l.Pod).Isolated {
		isolated = w.site.Machine.Online().Difference(isolated)
	}
	if others := cpus.Difference(isolated); !others.IsEmpty() {
		return fmt.Errorf("%s got CPUs %s, and isolated are %s", l.Name, others, w.site.IsolatedCPUs)
	}
	if err := w.checkPool(l, plan.Pod); err != nil {
		return err
	}
	for c := range podspec.Containers(l.Pod) {
		err := w.checkContainer(l, c, plan.Pod)
		if err == nil {
			err = w.checkClaims(l, c, plan.Pod.Containers[c.Name])
		}
		if err != nil {
			return fmt.Errorf("%s: container %s: %w", l.Name, c.Name, err)
		}
	}
	if err := l.checkApart(plan.Pod); err != nil {
		return err
	}
	return w.checkNode(l, plan.Pod)
}

func (w *world) checkContainer(l *lot, c *v1.Container, whole allocation.Pod) error {
	if err := w.checkCPUs(l, c, whole); err != nil {
		return err
	}
	check := w.checkBlocks
	if len(l.pool.memory) > 0 {
		check = (*lot).checkMemoryOfPool
	}
	if err := check(l, c, whole); err != nil {
		return err
	}
	got, wants := whole.Containers[c.Name], podspec.DeviceRequests(l.Pod, c)
	if len(wants) != len(got.Devices()) {
		return fmt.Errorf("it got devices of %d resources and asked for %d", len(got.Devices()),
			len(wants))
	}
	for i, want := range wants {
		set := got.Devices()[i]
		if set.Resource != want.Resource || len(set.IDs) != want.Count {
			return fmt.Errorf("it got %d of %s and asked for %d of %s", len(set.IDs), set.Resource,
				want.Count, want.Resource)
		}
		for _, id := range set.IDs {
			if w.room.Taken.Devices()[set.Resource].Has(id) || !w.hasDevice(deviceKey{set.Resource, id}) {
				return fmt.Errorf("it got %s, which is taken or not there", id)
			}
		}
	}
	return nil
}

// asAsked reports whether the container got the number of CPUs it asked for, rounded up to whole
// cores if the pod wants these; its pool, if it has one, is rounded up instead.
func (w *world) asAsked(l *lot, c *v1.Container, got cpuset.CPUSet) bool {
	asked := cpumanager.Exclusive(l.Pod, c, l.rules)
	if asked == 0 || !l.rules.WholeCores || l.pool.cpus > 0 {
		return got.Size() == asked
	}
	return got.Size() == w.room.CPUs.For(l.rules.CPURules).Padded(got, asked)
}

// checkBlocks compares a container's memory with its request. Containers after an init container
// may have taken over part of its memory.
func (w *world) checkBlocks(l *lot, c *v1.Container, got allocation.Pod) error {
	left := map[v1.ResourceName]uint64{}
	if w.room.Memory != nil {
		maps.Copy(left, memory.Requests(l.Pod, c, l.rules))
	}
	for _, b := range got.Containers[c.Name].Memory() {
		if b.Size > left[b.Resource] {
			return fmt.Errorf("it got %d bytes of %s more than it asked for",
				b.Size-left[b.Resource], b.Resource)
		}
		left[b.Resource] -= b.Size
	}
	_, kind := podspec.Find(l.Pod, c.Name)
	for name, n := range left {
		if n > 0 && kind != podspec.Init {
			return fmt.Errorf("it got %d bytes of %s less than it asked for", n, name)
		}
	}
	return nil
}

// checkApart checks that containers that run at the same time have nothing together, but for what they share
// of their pool. An init container runs beside the sidecars before it.
func (l *lot) checkApart(got allocation.Pod) error {
	cpus, devices := cpuset.New(), sets.New[deviceKey]()
	for c, kind := range podspec.Containers(l.Pod) {
		held := got.Containers[c.Name]
		if !cpus.Intersection(held.CPUs()).IsEmpty() && !l.sharesCPUs(c) {
			return fmt.Errorf("container %s got CPUs of another one", c.Name)
		}
		if kind != podspec.Init && !l.sharesCPUs(c) {
			cpus = cpus.Union(held.CPUs())
		}
		for _, d := range held.Devices() {
			for _, id := range d.IDs {
				key := deviceKey{d.Resource, id}
				if devices.Has(key) {
					return fmt.Errorf("container %s got %s of another one", c.Name, id)
				}
				if kind != podspec.Init {
					devices.Insert(key)
				}
			}
		}
	}
	return nil
}

// check sums up what the pods hold and compares it with what was updated step by step.
func (w *world) check() error {
	var all []allocation.Pod
	cpus, shares, claimed := 0, false, sets.New[deviceKey]()
	for _, t := range w.live {
		all = append(all, t.held)
		cpus += t.held.CPUs().Size()
		shares = shares || t.shape.shares
		claimed = claimed.Union(claimsOf(t.held))
	}
	sum := allocation.HoldingsOf(all...)
	if !sum.CPUs().Equals(w.room.Taken.CPUs()) || cpus != sum.CPUs().Size() ||
		shares != w.room.Sharing {
		return fmt.Errorf("pods hold the CPUs %s, %d one by one, and %s are taken",
			sum.CPUs(), cpus, w.room.Taken.CPUs())
	}
	for name, ids := range w.room.Taken.Devices() {
		if !ids.Equal(sum.Devices()[name]) && len(ids)+len(sum.Devices()[name]) > 0 {
			return fmt.Errorf("pods hold %v of %s, and %v are taken", sum.Devices()[name], name, ids)
		}
	}
	if !claimed.Equal(w.claimed) {
		return fmt.Errorf("claims of pods have %v, and %v are taken", claimed, w.claimed)
	}
	free := w.site.Machine.Online().Difference(w.site.ReservedCPUs).Difference(sum.CPUs())
	for id, idle := range w.idle {
		if idle != free.Contains(id) {
			return fmt.Errorf("CPU %d is free or not: all less assigned says %s", id, free)
		}
	}
	if err := w.checkMemory(); err != nil {
		return err
	}
	return w.checkRequests()
}

// checkMemory checks that the blocks of the pods are the blocks taken, and that they fit.
func (w *world) checkMemory() error {
	type group struct {
		nodes    topology.NodeSet
		resource v1.ResourceName
	}
	missing := map[group]uint64{}
	for _, b := range w.room.Taken.Memory() {
		missing[group{b.Nodes, b.Resource}] += b.Size
	}
	for _, t := range w.live {
		for _, b := range allocation.HoldingsOf(t.held).Memory() {
			missing[group{b.Nodes, b.Resource}] -= b.Size
		}
	}
	for g, n := range missing {
		if n != 0 {
			return fmt.Errorf("pods hold %d bytes of %s on nodes %s less than are taken",
				int64(n), g.resource, g.nodes)
		}
	}
	if w.room.Memory == nil {
		return nil
	}
	if misfits := w.room.Memory.Misfits(w.room.Taken.Memory()); len(misfits) > 0 {
		b := misfits[0]
		return fmt.Errorf("%d bytes of %s were given out on nodes %s, which have no room for them",
			b.Size, b.Resource, b.Nodes)
	}
	return nil
}

// checkRequests sums up what the pods request and compares it.
func (w *world) checkRequests() error {
	requests := v1.ResourceList{}
	for _, t := range w.live {
		for name, q := range t.shape.requests {
			total := requests[name]
			total.Add(q)
			requests[name] = total
		}
	}
	used := w.room.Others[0]
	for _, pair := range [][2]v1.ResourceList{{requests, used}, {used, requests}} {
		for name, q := range pair[0] {
			if other := pair[1][name]; q.Cmp(other) != 0 {
				return fmt.Errorf("of %s, pods request %v in all and %v are counted", name,
					requests.Name(name, q.Format), used.Name(name, q.Format))
			}
		}
	}
	return nil
}
