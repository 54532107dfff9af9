package eni

import (
	"errors"
	"log"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/internal/complaint"
)

// testKeeper returns a keeper with its own folder.
func testKeeper(t *testing.T, host Host, rules ...Rule) *keeper {
	t.Helper()
	return &keeper{host: host, rules: rules, move: ByNetwork, store: store{filepath.Join(t.TempDir(), "made")},
		records: Records{}, own: Own{}, news: news{log.New(&pages{}, "", 0), map[string]*complaint.Complaint[string]{}}}
}

// An interface that cannot be restored stays unhealthy, says why, and is tried again.
func TestCannotBeReset(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", VirtualOf: []string{"ens8f0"}})
	said := &pages{}
	k.news.log = log.New(said, "", 0)
	const id = "0000:81:00.1"
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.allocate("a", []string{id}, ""); err != nil {
		t.Fatal(err)
	}
	if at := k.places(); at[id] != id {
		t.Errorf("the agent is told that they are at %v", at)
	}
	healthy := func(pods sightOfPods) bool {
		t.Helper()
		offers, err := k.look(pods)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range offers["a"].devices {
			if d.GetID() == id {
				return d.GetHealth() == "Healthy"
			}
		}
		t.Fatalf("%s is not listed", id)
		return false
	}
	sim.change(func() { // a container has it
		for i, l := range sim.links {
			if l.State.Name == "ens8f0v0" {
				l.State.Name, l.State.MTU = "net1", 1400
				sim.away = append(sim.away, l)
				sim.links = append(sim.links[:i:i], sim.links[i+1:]...)
			}
		}
		sim.broken = errors.New("no")
	})
	device, err := filepath.EvalSymlinks(filepath.Join(sys.root, "class/net/ens8f0v0/device"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(sys.root, "class/net/net1/device"), "-> "+device)
	if !healthy(podsHave(id)) {
		t.Error("it is unhealthy while a container has it")
	}
	if healthy(podsHave()) || !said.has("is unhealthy: it is not as it was before a "+
		"container had it: ") {
		t.Error("it is healthy, or nobody was told, though it cannot be reset")
	}
	if _, err := k.allocate("a", []string{id}, ""); err == nil {
		t.Error("it is handed out as it is")
	}
	sim.change(func() { sim.broken = nil })
	if !healthy(sightOfPods{}) || k.records[id].Phase != Free {
		t.Errorf("it is not healthy again: %+v", k.records[id])
	}
	if !strings.Contains(strings.Join(sim.applied, ", "), `name "ens8f0v0"`) {
		t.Errorf("these steps were made: %v", sim.applied)
	}
}

// A released interface is back before the answer, or the answer says why it is not.
func TestReleased(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", VirtualOf: []string{"ens8f0"}})
	const id = "0000:81:00.1"
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if err := k.released([]string{id, "never-there"}, ""); err != nil {
		t.Errorf("what nobody has is released with %v", err)
	}
	if _, err := k.allocate("a", []string{id}, ""); err != nil {
		t.Fatal(err)
	}
	sim.change(func() { // a container has changed it
		for i, l := range sim.links {
			if l.State.Name == "ens8f0v0" {
				sim.links[i].State.MTU = 1400
			}
		}
		sim.broken = errors.New("no")
	})
	err := k.released([]string{id}, "")
	if err == nil || !strings.Contains(err.Error(), "interface "+id+": ") || k.records[id].Phase == Free {
		t.Errorf("it cannot be reset, and the answer is %v: %+v", err, k.records[id])
	}
	sim.change(func() { sim.broken = nil })
	for range 2 {
		if err := k.released([]string{id}, ""); err != nil || k.records[id].Phase != Free {
			t.Errorf("it is not back: %v, %+v", err, k.records[id])
		}
	}
	if !strings.HasSuffix(strings.Join(sim.applied, ", "), "set MTU 9000, set up") {
		t.Errorf("these steps were made: %v", sim.applied)
	}
}

// A plugin that starts again knows what containers have, and its original state.
func TestBeginsAgain(t *testing.T) {
	sim, sys := open(t, "rdma")
	rule := Rule{Resource: "a", VirtualOf: []string{"ens8f0"}}
	k := testKeeper(t, Host{sim, sim, sys}, rule)
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.allocate("a", []string{"0000:81:00.1"}, ""); err != nil {
		t.Fatal(err)
	}
	sim.change(func() {
		kept := sim.links[:0:0]
		for _, l := range sim.links {
			if l.State.Name != "ens8f0v0" {
				kept = append(kept, l)
			}
		}
		sim.links = kept
	})
	again := testKeeper(t, k.host, rule)
	again.store = k.store
	var err error
	if again.records, err = again.store.load(); err != nil {
		t.Fatal(err)
	}
	offers, err := again.look(podsHave("0000:81:00.1"))
	if err != nil || len(offers["a"].devices) != 2 {
		t.Errorf("offered are %v, %v; want both, also that which a container has",
			offers["a"].devices, err)
	}
	r := again.records["0000:81:00.1"]
	if r.Phase != Handed || r.Home.Link.State.Name != "ens8f0v0" {
		t.Errorf("the records are %+v", r)
	}
}

// An interface that the node has come to need since it was offered is not handed out.
func TestOwnIsNotHandedOut(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1", "ens8f0v1"}})
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	sim.change(func() { sim.routes = []int{2, 3} })
	_, err := k.allocate("a", []string{"0000:00:06.0"}, "")
	if err == nil || !strings.Contains(err.Error(), "interface 0000:00:06.0 is not offered any "+
		"more: it carries the default route") {
		t.Errorf("it is handed out: %v", err)
	}
	sim.change(func() { // somebody moves the other one
		sim.links = slices.DeleteFunc(sim.links, func(l Link) bool { return l.State.Name == "ens8f0v1" })
	})
	if _, err = k.allocate("a", []string{"0000:81:00.2"}, ""); err == nil ||
		!strings.Contains(err.Error(), "somebody has moved it") {
		t.Errorf("the other one is handed out: %v", err)
	}
	for id, r := range k.records {
		if r.Phase != Free {
			t.Errorf("%s is %s", id, r.Phase)
		}
	}
}

// An interface from another configuration belongs to its container as long as its pod has it.
func TestResourceOfBefore(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1"}})
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.allocate("a", []string{"0000:00:06.0"}, ""); err != nil {
		t.Fatal(err)
	}
	k.rules = []Rule{{Resource: "b", Names: []string{"eth1"}}}
	if got := k.resources(); !got.Equal(sets.New("a", "b")) {
		t.Errorf("pods are asked about for having %q", got)
	}
	if offers, err := k.look(podsHave("0000:00:06.0")); err != nil ||
		len(offers["b"].devices)+len(offers["a"].devices) > 0 {
		t.Errorf("what a container has is offered: %v, %v", offers, err)
	}
}

// A plugin that lost its records learns of a container's interface at the container's next start.
func TestPreparedWithoutRecords(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1"}})
	k.move = ByRuntime
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if err := k.prepare([]string{"0000:00:06.0"}, "uid"); err != nil {
		t.Fatal(err)
	}
	if r := k.records["0000:00:06.0"]; r.Phase != Handed || r.Pod != "uid" {
		t.Errorf("the records are %+v", r)
	}
}

// A runtime that does not know network devices leaves them where they are; the plugin logs it.
func TestRuntimeLeavesIt(t *testing.T) {
	sim, sys := open(t, "rdma")
	k, said := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1"}}), &pages{}
	k.move, k.news.log = ByRuntime, log.New(said, "", 0)
	const id, text = "0000:00:06.0", "is still on the host, though its container was to start"
	look := func() {
		t.Helper()
		if _, err := k.look(podsHave(id)); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if _, err := k.allocate("a", []string{id}, ""); err != nil {
		t.Fatal(err)
	}
	if err := k.prepare([]string{id}, ""); err != nil {
		t.Fatal(err)
	}
	if look(); said.has(text) {
		t.Errorf("at once it is said that %s", said.text.String())
	}
	r := k.records[id]
	r.Prepared = r.Prepared.Add(-movedWithin)
	k.records[id] = r
	if look(); !said.has(id + " (eth1) " + text) {
		t.Errorf("the log says %s", said.text.String())
	}
}

// A repeated release does not take the interface from another pod that has it by then.
func TestReleasedLate(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Names: []string{"eth1"}})
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	ids := []string{"0000:00:06.0"}
	for _, pod := range []string{"first", "second"} {
		if _, err := k.allocate("a", ids, pod); err != nil {
			t.Fatal(err)
		}
		if err := k.released(ids, "first"); err != nil {
			t.Error(err)
		}
	}
	if r := k.records[ids[0]]; r.Phase != Handed || r.Pod != "second" {
		t.Errorf("the records are %+v", r)
	}
}

// An interface that came home with the index of one that disappeared is not taken for it.
func TestIndexOfAnother(t *testing.T) {
	own := Link{Index: 2, State: State{Name: "own0"}}
	eth := func(index int, name, mac string) Link {
		return Link{Index: index, Kind: "veth", State: State{Name: name, MAC: mac}}
	}
	sim := &simulated{routes: []int{2}, links: []Link{own,
		eth(3, "eth1", "02:00:00:00:00:01"), eth(4, "eth2", "02:00:00:00:00:02")}}
	k := testKeeper(t, Host{sim, sim, sysfs{t.TempDir(), "/dev"}},
		Rule{Resource: "a", Names: []string{"eth*"}})
	if _, err := k.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.allocate("a", []string{"eth1", "eth2"}, ""); err != nil {
		t.Fatal(err)
	}
	sim.change(func() { sim.links = []Link{own, eth(4, "net1", "02:00:00:00:00:01")} })
	if err := k.released([]string{"eth2", "eth1"}, ""); err != nil {
		t.Error(err)
	}
	if l := sim.links[1]; l.State.Name != "eth1" || l.State.MAC != "02:00:00:00:00:01" {
		t.Errorf("it is %+v; these steps were made: %v", l, sim.applied)
	}
	if len(k.records) != 1 {
		t.Errorf("the records are %+v", k.records)
	}
}

// The node's interface is not offered while nobody knows what the node needs, nor when the default
// route is gone for a moment.
func TestOwnIsKept(t *testing.T) {
	sim, sys := open(t, "rdma")
	k := testKeeper(t, Host{sim, sim, sys}, Rule{Resource: "a", Drivers: []string{"virtio_net"}})
	count := func() int {
		t.Helper()
		offers, err := k.look(sightOfPods{})
		if err != nil {
			t.Fatal(err)
		}
		return len(offers["a"].devices)
	}
	sim.change(func() { sim.routes = nil })
	if n := count(); n != 0 {
		t.Errorf("%d are offered while nothing is known", n)
	}
	sim.change(func() { sim.routes = []int{2} })
	if n := count(); n != 1 {
		t.Errorf("%d are offered, want one", n)
	}
	sim.change(func() { sim.routes = nil })
	if n := count(); n != 1 {
		t.Errorf("%d are offered without a default route, want one", n)
	}
}
