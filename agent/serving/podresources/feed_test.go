package podresources

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// world is a node that changes at random.
type world struct {
	*rand.Rand
	pods      map[types.UID]*v1.Pod
	assigned  map[types.UID]allocation.Pod
	resources map[string]devicemanager.Resource
	version   uint64
	cpus      cpuset.CPUSet
}

func newWorld(seed uint64) *world {
	return &world{
		Rand: rand.New(rand.NewPCG(seed, 0)), pods: map[types.UID]*v1.Pod{},
		assigned: map[types.UID]allocation.Pod{}, resources: map[string]devicemanager.Resource{},
	}
}

func (w *world) step() {
	switch w.IntN(10) {
	case 0, 1, 2, 3:
		w.come()
	case 4, 5:
		for uid := range w.pods { // an arbitrary pod
			delete(w.pods, uid)
			delete(w.assigned, uid)
			break
		}
	case 6, 7, 8:
		w.plugin()
	case 9:
		w.cpus = cpuset.New(w.IntN(4), w.IntN(4))
	}
}

// come adds a pod, or changes what an existing one holds.
func (w *world) come() {
	uid := types.UID(fmt.Sprint(w.IntN(12)))
	pod := podtest.New("ab"[len(uid)%2:][:1]+"/pod-"+string(uid), podtest.UID(uid),
		podtest.Containers("main"))
	held := allocation.Container{}
	if w.IntN(2) == 0 {
		held = held.With(allocation.CPUs(cpuset.New(w.IntN(8))))
	}
	if w.IntN(2) == 0 {
		held = held.With(allocation.Devices([]allocation.DeviceSet{{
			Resource: w.resource(), IDs: []string{fmt.Sprint(w.IntN(5))},
		}}))
	}
	w.pods[uid] = pod
	w.assigned[uid] = allocation.Pod{Containers: map[string]allocation.Container{"main": held}}
}

func (w *world) resource() string { return []string{"x/gpu", "x/nic"}[w.IntN(2)] }

func (w *world) plugin() {
	w.version++
	name := w.resource()
	r := devicemanager.Resource{Name: name, Connected: w.IntN(5) > 0}
	for id := range 6 {
		if w.IntN(3) > 0 {
			r.Devices = append(r.Devices, &devicemanager.Device{
				ID: fmt.Sprint(id), Healthy: w.IntN(3) > 0, Nodes: []topology.NodeSet{
					{}, topology.NewNodeSet(1), topology.NewNodeSet(0, 1),
				}[w.IntN(3)],
			})
		}
	}
	w.resources[name] = r
	if w.IntN(10) == 0 {
		delete(w.resources, name)
	}
}

func (w *world) snapshot() Snapshot {
	s := Snapshot{
		CPUs: w.cpus, Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{}},
		Inventory: devicemanager.Inventory{Version: w.version,
			Resources: map[string]devicemanager.Resource{}},
	}
	for uid, pod := range w.pods {
		s.Pods = append(s.Pods, pod)
		s.Assigned.Pods[uid] = w.assigned[uid]
	}
	for name, r := range w.resources {
		s.Inventory.Resources[name] = r
	}
	return s
}

// facts returns what a state says under a filter. It follows the promise of the messages and does
// not use the code that compares states.
func (f filter) facts(s Snapshot) string {
	var out []string
	for _, pod := range s.Pods {
		has := s.pod(pod)
		text := compact(has)
		if (f.namespace == "" || pod.Namespace == f.namespace) &&
			(f.resource == "" || strings.Contains(text, `"`+f.resource+`"`) ||
				f.resource == "cpu" && strings.Contains(text, "cpu_ids")) {
			out = append(out, string(pod.UID)+" "+text)
		}
	}
	if f.allocatable {
		all := s.allocatable()
		if f.resource == "" || f.resource == "cpu" {
			out = append(out, fmt.Sprint("cpus ", all.CpuIds))
		}
		for _, d := range all.Devices {
			if f.resource == "" || f.resource == d.ResourceName {
				out = append(out, compact(d))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func mirrored(f filter, m *watchv1.Mirror) string {
	var out []string
	for _, pod := range m.Pods() {
		out = append(out, pod.Uid+" "+compact(pod.Resources))
	}
	all := m.Allocatable()
	if f.node() {
		out = append(out, fmt.Sprint("cpus ", all.CpuIds))
	}
	for _, d := range all.Devices {
		out = append(out, compact(d))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// client is a reader that may stop and reconnect anywhere.
type client struct {
	filter filter
	mirror watchv1.Mirror
	resets int
}

// read watches until it is up to date, or for that many messages.
func (c *client) read(t *testing.T, f *feed, messages int) {
	r := &reader{feed: f, filter: c.filter}
	cut := fmt.Errorf("cut off")
	r.send = func(m *watchv1.WatchResponse) error {
		if messages--; messages < 0 {
			return cut
		}
		raw, err := proto.Marshal(m)
		var got watchv1.WatchResponse
		if err == nil {
			err = proto.Unmarshal(raw, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got.GetSnapshot() != nil {
			c.resets++
		}
		if got.Generation < c.mirror.Generation {
			t.Fatalf("generation %d after %d", got.Generation, c.mirror.Generation)
		}
		c.mirror.Apply(&got)
		return nil
	}
	first := r.begin(&watchv1.WatchRequest{
		Instance: c.mirror.Instance, Generation: c.mirror.Generation,
	})
	err := r.tell(r.at.Load(), first)
	for err == nil {
		next, lost, _ := f.next(r.at.Load())
		if lost {
			t.Fatal("lost while nobody publishes")
		}
		if next == nil {
			return
		}
		err = r.step(next)
	}
	if err != cut {
		t.Fatal(err)
	}
}

// TestReadersSeeTheState: whatever happens, and wherever a reader was disconnected, once it is up
// to date it has the same as List.
func TestReadersSeeTheState(t *testing.T) {
	filters := []filter{
		{}, {allocatable: true}, {namespace: "a"}, {resource: "x/gpu", allocatable: true},
		{resource: "cpu", namespace: "b", allocatable: true},
	}
	resumed, resets := 0, 0
	for seed := range uint64(20) {
		w := newWorld(seed)
		f := newFeed(w.snapshot)
		f.refresh()
		f.past.maxChanges, f.past.maxWeight = 40, 400
		clients := make([]client, 3*len(filters))
		for i := range clients {
			clients[i].filter = filters[i%len(filters)]
		}
		for range 300 {
			w.step()
			if w.IntN(3) > 0 {
				f.refresh()
			}
			c := &clients[w.IntN(len(clients))]
			before := c.resets
			c.read(t, f, w.IntN(30))
			resumed++
			if resets += c.resets - before; c.resets == before && !c.mirror.Complete {
				continue
			}
			c.read(t, f, 1<<20)
			got, want := mirrored(c.filter, &c.mirror), c.filter.facts(w.snapshot())
			if got != want {
				t.Fatalf("seed %d, %+v, generation %d:\n%s\nwant\n%s", seed, c.filter,
					c.mirror.Generation, got, want)
			}
		}
		if n := len(f.past.changes); n > 40 || f.past.weight > 400 {
			t.Fatalf("%d changes of weight %d are kept", n, f.past.weight)
		}
	}
	if resets == 0 || resets > resumed*2/3 {
		t.Errorf("%d snapshots in %d watches; both resuming and starting anew should happen",
			resets, resumed)
	}
}

// TestRefreshesOvertake: a refresh with a slow snapshot delays nobody, and does not restore an
// older state.
func TestRefreshesOvertake(t *testing.T) {
	w := newWorld(1)
	w.come()
	old := w.snapshot()
	asked, slow := make(chan struct{}), make(chan Snapshot)
	var calls atomic.Int32
	f := newFeed(func() Snapshot {
		if calls.Add(1) == 2 {
			close(asked)
			return <-slow
		}
		return w.snapshot()
	})
	f.refresh()
	w.cpus = cpuset.New(3)
	done := make(chan *state)
	go func() { done <- f.refresh() }()
	<-asked
	if now := f.refresh(); now.generation != 2 {
		t.Errorf("generation %d", now.generation)
	}
	old.CPUs = cpuset.New(2)
	slow <- old
	if now := <-done; now.generation != 2 || !now.from.CPUs.Equals(w.cpus) || f.state() != now {
		t.Errorf("generation %d with CPUs %s", now.generation, now.from.CPUs)
	}
}

// TestHistory: after(g) is the change to g+1 while that is within the bounds, as in a plain list of
// all changes.
func TestHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h := newHistory(7)
	h.maxChanges, h.maxWeight = 5, 40
	weights := map[uint64]int{}
	last := uint64(7)
	for range 2000 {
		c := change{generation: last + 1,
			devices: []deviceChange{{deleted: make([]string, random.IntN(12))}}}
		want := c.weight()
		if want > 10 {
			want = 1 // only that there was a change
		}
		h.add(c)
		last++
		weights[last] = want
		kept, sum := 0, 0
		for g := last; g > 7 && kept < 5 && sum+weights[g] <= 40; g-- {
			kept, sum = kept+1, sum+weights[g]
			if next := h.after(g - 1); h.lost(g-1) || next == nil || next.generation != g ||
				next.weight() != weights[g] {
				t.Fatalf("after(%d) of %d = %+v, lost %v", g-1, last, next, h.lost(g-1))
			}
		}
		if oldest := last - uint64(kept); oldest > 7 && !h.lost(oldest-1) || h.weight != sum {
			t.Fatalf("at %d: %d changes of weight %d should be kept, there is %d", last, kept, sum,
				h.weight)
		}
		if h.lost(last) || h.after(last) != nil {
			t.Fatalf("after(%d), which is the last: %v", last, h.after(last))
		}
	}
}

// TestUnchangedIsShared: a state with few changes costs little more memory, and an unchanged
// snapshot makes no new generation.
func TestUnchangedIsShared(t *testing.T) {
	now := snapshot()
	f := newFeed(func() Snapshot { return now })
	first := f.refresh()
	if again := f.refresh(); again != first || first.generation != 1 {
		t.Errorf("generation %d follows %d without a change", again.generation, first.generation)
	}
	now.Pods = now.Pods[:1]
	second := f.refresh()
	if second.generation != 2 || len(second.pods) != 1 {
		t.Fatalf("state %+v", second)
	}
	if second.pods[0].has != first.pods[1].has || second.node != first.node {
		t.Error("what did not change is there twice")
	}
	if got := second.list(); !proto.Equal(got[0], podOf(now.sorted(), now)) {
		t.Errorf("list %v", got)
	}
}

func podOf(pods []*v1.Pod, s Snapshot) *podresourcesv1.PodResources { return s.pod(pods[0]) }
