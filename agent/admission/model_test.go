package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	modelNodes = 60
	modelSteps = 150
)

// model is what a test knows of a queue that it disturbs at random.
type model struct {
	world
	machine *topology.Machine
	submit  []types.UID // all pods, in order
	last    map[types.UID]Outcome
	leaving []types.UID
	hangs   atomic.Bool
	// claims are those of the step before, as long as nothing has happened to the devices.
	claims map[types.UID]allocation.Pod
	seen   map[string]int
}

// Whatever happens, nothing is held or claimed twice, a claim is kept, nobody waits for what is not
// going to come, and every pod is decided on in the end.
func TestClaimsUnderRandomEvents(t *testing.T) {
	machines, seen := smallMachines(t), map[string]int{}
	for i := range among(modelNodes) {
		w, dir := world{Rand: rand.New(rand.NewPCG(23, uint64(i)))}, t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			m := &model{
				world: w, machine: w.machine(t, machines), last: map[types.UID]Outcome{},
				seen: seen,
			}
			m.run(t, dir)
		})
		if t.Failed() {
			t.Fatalf("on node %d", i)
		}
	}
	t.Log(seen)
	for _, what := range []string{
		"Admit", "Reject", "Admit after Wait", "Reject after Wait", ReasonWaitResources,
		ReasonWaitPlugin, ReasonWaitDevices, "claim",
	} {
		if seen[what] < among(10) {
			t.Errorf("%d times %s is too few to mean anything", seen[what], what)
		}
	}
}

func (m *model) run(t *testing.T, dir string) {
	m.plugins = &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
		if !m.hangs.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	m.plugins.advise = m.advice
	m.inventory(m.machine)
	m.desk = open(t, dir, m.plugins, func(c *Config) {
		m.configure(t, c, m.machine)
		c.Wait = 2 * time.Minute
	})
	defer m.desk.stop()
	for i := range modelSteps {
		m.step(types.UID(fmt.Sprint("p", i)))
		synctest.Wait()
		m.listen(t)
		m.check(t)
		m.desk.queue.Poke() // so that it is known that it goes on after the check
		if t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
	m.hangs.Store(false)
	time.Sleep(4 * time.Minute)
	synctest.Wait()
	m.listen(t)
	for _, uid := range m.submit {
		if o := m.last[uid]; o != Admit && o != Reject && !slices.Contains(m.leaving, uid) {
			t.Errorf("pod %s is not decided on: %q", uid, o)
		}
	}
}

// step does one thing at random.
func (m *model) step(uid types.UID) {
	switch n := m.IntN(20); {
	case n < 8:
		m.submit = append(m.submit, uid)
		m.last[uid] = ""
		m.desk.queue.Submit(m.pod(uid), false)
	case n < 12:
		if all := m.with(Admit); len(all) > 0 {
			gone := all[m.IntN(len(all))]
			m.leaving = append(m.leaving, gone)
			m.desk.queue.Leaving(gone, false)
		}
	case n < 16:
		if len(m.leaving) > 0 {
			i := m.IntN(len(m.leaving))
			m.release(m.leaving[i])
			m.leaving = slices.Delete(m.leaving, i, i+1)
		}
	case n == 16: // one that waits, or was rejected
		if all := append(m.with(Wait), m.with(Reject)...); len(all) > 0 {
			m.release(all[m.IntN(len(all))])
		}
	case n == 17:
		m.inventory(m.machine)
		m.desk.queue.Poke()
		m.claims = nil
	case n == 18:
		m.hangs.Store(!m.hangs.Load())
	default:
		time.Sleep(time.Duration(m.IntN(40)) * time.Second)
	}
}

func (m *model) release(uid types.UID) {
	m.desk.queue.Release(uid)
	delete(m.last, uid)
	m.submit = slices.DeleteFunc(m.submit, func(other types.UID) bool { return other == uid })
}

// with lists the pods, not leaving, of which that was said last.
func (m *model) with(outcome Outcome) (out []types.UID) {
	for _, uid := range m.submit {
		if m.last[uid] == outcome && !slices.Contains(m.leaving, uid) {
			out = append(out, uid)
		}
	}
	return out
}

func (m *model) listen(t *testing.T) {
	for _, e := range m.desk.queue.admitter.pods.order {
		said, before := e.told.last, m.last[e.pod.UID]
		if said.Outcome == before {
			continue
		}
		if before == Admit || before == Reject {
			t.Errorf("pod %s: %s after %s", e.pod.UID, said.Outcome, before)
		}
		m.last[e.pod.UID] = said.Outcome
		m.seen[string(said.Outcome)]++
		if before == Wait {
			m.seen[string(said.Outcome)+" after Wait"]++
		} else if said.Outcome == Wait {
			m.seen[said.Reason]++
		}
	}
	m.desk.hear()
}

// check looks into the queue, which is at rest.
func (m *model) check(t *testing.T) {
	q := m.desk.queue
	stored := q.admitter.cfg.Store.State().Pods
	var firm, leaving, claimed ledger
	claims := map[types.UID]allocation.Pod{}
	for _, e := range q.admitter.pods.order {
		held := e.has.pod
		if e.state == rejected {
			held = allocation.Pod{}
		}
		if s, ok := stored[e.pod.UID]; ok && !reflect.DeepEqual(s.Containers, held.Containers) {
			t.Errorf("pod %s holds %v, the store has %v", e.pod.UID, held, s)
		}
		switch {
		case e.claims():
			claimed.add(e)
			if e.told.last.Reason == ReasonWaitResources { // others may come to do without a device
				claims[e.pod.UID] = held
			}
		case e.counts() && !e.state.goes():
			firm.add(e)
		case e.counts():
			leaving.add(e)
		}
		m.pointless(t, e)
	}
	allocatable := m.desk.hardware().Allocatable
	firm.beside(t, "what pods that stay hold and what terminating pods hold", leaving, allocatable)
	firm.beside(t, "what pods that stay hold and what waiting pods claim", claimed, allocatable)
	for uid, before := range m.claims {
		now, still := claims[uid]
		if still && !reflect.DeepEqual(m.places(before), m.places(now)) {
			t.Errorf("the claim of %s was %v and is %v, though nothing happened to it",
				uid, before, now)
		}
		m.seen["claim"]++
	}
	m.claims = claims
}

// places is a claim with the nodes of devices in place of those that may be exchanged.
func (m *model) places(claim allocation.Pod) map[string]string {
	out := map[string]string{}
	for name, c := range claim.Containers {
		text := fmt.Sprint(c.CPUs, c.Memory)
		for _, set := range c.Devices {
			ids := slices.Clone(set.IDs)
			r := m.plugins.Inventory().Resources[set.Resource]
			for i, id := range set.IDs {
				if d, found := r.Find(id); found && r.Options.Preferred {
					ids[i] = "one of " + d.Nodes.String()
				}
			}
			slices.Sort(ids)
			text += fmt.Sprint(set.Resource, ids)
		}
		out[name] = text
	}
	return out
}

// pointless finds pods that wait for what cannot come.
func (m *model) pointless(t *testing.T, e *entry) {
	if e.state == queued {
		t.Errorf("pod %s is left in the queue", e.pod.UID)
	}
	if e.state == waiting && e.told.last.Reason == ReasonWaitResources &&
		len(m.leaving) == 0 {
		t.Errorf("pod %s waits for resources, and nobody is terminating", e.pod.UID)
	}
	if e.claims() && !e.state.goes() && time.Since(e.tries.since) > 2*time.Minute {
		t.Errorf("pod %s waits for %v", e.pod.UID, time.Since(e.tries.since))
	}
}

// ledger is what pods hold together, each thing once.
type ledger struct {
	cpus     sets.Set[int]
	devices  sets.Set[string]
	requests v1.ResourceList
	twice    []string
}

func (l *ledger) add(e *entry) {
	if l.cpus == nil {
		l.cpus, l.devices = sets.New[int](), sets.New[string]()
	}
	taken := allocation.TakenBy(e.has.pod)
	for _, cpu := range taken.CPUs.List() {
		if l.cpus.Has(cpu) {
			l.twice = append(l.twice, fmt.Sprint("CPU ", cpu, " by ", e.pod.UID))
		}
		l.cpus.Insert(cpu)
	}
	for resource, ids := range taken.Devices {
		for _, id := range sets.List(ids) {
			if l.devices.Has(resource + id) {
				l.twice = append(l.twice, resource+" "+id+" by "+string(e.pod.UID))
			}
			l.devices.Insert(resource + id)
		}
	}
	l.requests = allocation.AddRequests(l.requests, e.requests)
}

// beside checks that both have things of their own, and together no more than there is.
func (l *ledger) beside(t *testing.T, what string, o ledger, allocatable v1.ResourceList) {
	t.Helper()
	if len(l.twice)+len(o.twice) > 0 {
		t.Errorf("%s: held twice: %v %v", what, l.twice, o.twice)
	}
	if both := l.cpus.Intersection(o.cpus); both.Len() > 0 {
		t.Errorf("%s: both have CPUs %v", what, sets.List(both))
	}
	if both := l.devices.Intersection(o.devices); both.Len() > 0 {
		t.Errorf("%s: both have devices %v", what, sets.List(both))
	}
	for name, quantity := range allocation.AddRequests(l.requests, o.requests) {
		if have := allocatable[name]; !podspec.IsExtended(name) && quantity.Cmp(have) > 0 {
			t.Errorf("%s: %s of %s, of %s", what, quantity.String(), name, have.String())
		}
	}
}
