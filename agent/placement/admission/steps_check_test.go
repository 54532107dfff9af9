package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// check compares the queue at rest, the store and the file with the model.
func (w *walk) check() {
	if n := w.plugins.asked.Swap(0); n > enough {
		w.failf("plugins were asked without end")
	}
	w.reap()
	w.claimed()
	w.hear()
	w.settle()
	if len(w.releasing) > 0 && !w.broken {
		w.failf("nothing is said of the release of %v", w.releasing)
	}
	free := w.ledger()
	w.owed(&free)
	w.entries(&free)
	w.needed()
	w.promised()
	w.lineEnds()
	if state := w.desk.store.State(); w.stale || state.Version != w.checked {
		w.compare("the store", state)
		w.file()
		w.checked, w.stale = state.Version, false
	}
	for _, t := range w.tenants {
		w.decided(t)
	}
	w.free(free) // asks the queue, so that what it does next comes after all that was read here
}

// reap forgets the pods that were released while nothing could be written, once it could.
func (w *walk) reap() {
	state := w.desk.store.State()
	for _, t := range slices.Clone(w.tenants) {
		if _, has := state.Pods[t.uid]; t.going && !has {
			w.drop(t)
		}
	}
}

// sums is what is taken, by what it is of.
type sums struct {
	cpus    mask
	devices map[string]bool
	memory  map[string]uint64 // by nodes and resource
	unclear bool              // memory that is claimed and recorded for the same pod
}

func (w *walk) ledger() sums {
	s := sums{devices: map[string]bool{}, memory: map[string]uint64{}}
	for _, t := range w.tenants {
		s.add(t.held)
	}
	return s
}

func (s *sums) add(g *grant) {
	if g == nil {
		return
	}
	s.cpus |= g.cpus
	for _, id := range g.devices {
		s.devices[id] = true
	}
	for _, b := range g.blocks {
		s.memory[b.Nodes.String()+" "+string(b.Resource)] += b.Size
	}
}

// owed checks that nobody is given what plugins are still to hear of, and that plugins that are well
// have heard of it. It is not free.
func (w *walk) owed(all *sums) {
	for _, o := range w.desk.store.State().PendingReleases {
		at := slices.Index(stepResources[:], o.Resource)
		of, known := w.plugins.Inventory().Resources[o.Resource]
		well := known && of.Connected && !w.plugins.refuses[at].Load() && !w.broken &&
			time.Since(w.plugins.recovered[at]) > 20*time.Second && !w.plugins.hangs[at].Load()
		for _, id := range o.IDs {
			all.devices[o.Resource+"/"+id] = true
			if known && of.Connected {
				w.seen["waited for a release"]++
			}
		}
		if well {
			w.failf("the plugin of %s is well and has not heard that %v of %s are released",
				o.Resource, o.IDs, o.UID)
		}
		for _, e := range w.desk.queue.admitter.line.Order {
			had := allocation.HoldingsOf(e.Has.Pod).Devices()[o.Resource]
			if had.HasAny(o.IDs...) && !e.Claims() && !e.Runs {
				w.failf("%s is given %v of %s, which are owed to its plugin", e.Pod.UID, had, o.Resource)
			}
		}
	}
}

// owes reports whether a plugin is still to hear of devices that the pod may want.
func (w *walk) owes(t *tenant) bool {
	return slices.ContainsFunc(w.desk.store.State().PendingReleases, func(o allocation.PendingRelease) bool {
		return t.wants(slices.Index(stepResources[:], o.Resource))
	})
}

// entries checks that the queue knows those pods that it was told of and that only those who have
// no place yet have claims and reservations, which are added.
func (w *walk) entries(all *sums) {
	known := 0
	for _, t := range w.tenants {
		if t.known || t.going {
			known++
		}
	}
	if n := len(w.desk.queue.admitter.line.Order); n != known {
		w.failf("the queue knows %d pods, want %d", n, known)
	}
	w.lines()
	var reserved sums
	for _, e := range w.desk.queue.admitter.line.Order {
		t := w.find(e.Pod.UID)
		if t == nil {
			w.failf("the queue has %s, which was released", e.Pod.UID)
			continue
		}
		if e.State == record.Admitted || e.State == record.Terminating || len(e.Has.Pod.Containers) == 0 {
			continue
		}
		if e.State == record.Rejected {
			w.failf("%s was rejected and claims %s", t.uid, written(e.Has.Pod))
			continue
		}
		g := grantOf(e.Has.Pod, 0)
		if !e.Claims() && e.State != record.Releasing && e.State != record.Unreleased {
			t.inflight = true
			w.reserved(t, g, &reserved)
		}
		all.unclear = all.unclear || t.held != nil && len(g.blocks)+len(t.held.blocks) > 0
		all.add(g)
	}
}

// lines checks that of each resource one plugin's preference is asked for at a time, that only pods that are
// asked about or stand in line have a place that may change, and that none stands there for nothing.
func (w *walk) lines() {
	slots := map[string]types.UID{}
	a := &w.desk.queue.admitter
	for _, e := range a.line.Order {
		if e.Has.Kind == record.Placed && !e.Undecided() {
			w.failf("%s has a place that may change in state %s", e.Pod.UID, e.State)
		}
		if e.State == record.Behind && !a.line.IsBehind(e, a.line.View) {
			w.failf("%s stands in line behind nobody", e.Pod.UID)
		}
		if e.State == record.Behind {
			w.seen["in line"]++
		}
		if e.State != record.Asking {
			continue
		}
		open := e.Question.Resource
		for _, name := range a.line.View.Contested(e.Demand) {
			if !e.Holds(name) && name != open {
				w.seen["others go on"]++
				continue
			}
			if other, taken := slots[name]; taken {
				w.failf("%s and %s have the turn for %s", other, e.Pod.UID, name)
			}
			slots[name] = e.Pod.UID
		}
		if e.Chosen.All(e.Pod, open) != nil {
			w.failf("%s is asked about %s, of which all its devices are chosen", e.Pod.UID, open)
		}
	}
}

// inLine reports whether the pod waits for what a plugin that hangs prefers, for it or for another.
func (w *walk) inLine(t *tenant) bool {
	e := w.desk.queue.admitter.line.Find(t.uid)
	if e != nil && e.State == record.Inquiring {
		w.seen["asked what it needs"]++
		return true
	}
	return e != nil && (e.State == record.Behind || e.State == record.Asking && w.slow(t))
}

// reserved checks that what is about to be given to a pod is nobody else's.
func (w *walk) reserved(t *tenant, g *grant, others *sums) {
	if both := g.cpus & others.cpus; both != 0 {
		w.failf("CPUs %s are reserved for %s (%s) and for another", both.set(), t.uid, w.state(t))
	}
	others.cpus |= g.cpus
	for _, o := range w.tenants {
		if o == t || o.held == nil {
			continue
		}
		if both := g.cpus & o.held.cpus; both != 0 {
			w.failf("CPUs %s are reserved for %s (%s) and held by %s (%s)", both.set(), t.uid,
				w.state(t), o.uid, w.state(o))
		}
		for _, id := range g.devices {
			if slices.Contains(o.held.devices, id) {
				w.failf("%s is reserved for %s (%s) and held by %s (%s)", id, t.uid,
					w.state(t), o.uid, w.state(o))
			}
		}
	}
}

// state names the pod's state and what kind of reservation it has.
func (w *walk) state(t *tenant) string {
	e := w.desk.queue.admitter.line.Find(t.uid)
	if e == nil {
		return "unknown"
	}
	kind := [...]string{"assigned", "place", "claim"}[e.Has.Kind]
	return fmt.Sprintf("%s, %s %s", e.State, kind, written(e.Has.Pod))
}

// compare checks that exactly what pods hold is recorded.
func (w *walk) compare(where string, state allocation.State) {
	n := 0
	for _, t := range w.tenants {
		stored, has := state.Pods[t.uid]
		switch {
		case t.going && w.broken && has:
			n++ // it goes once the file can be written
		case t.going:
			if has {
				w.failf("%s was released, and %s has %s", t.uid, where, written(stored))
			}
		case t.held == nil && has:
			w.failf("%s holds nothing, and %s has %s", t.uid, where, written(stored))
		case t.held != nil && !has:
			w.failf("%s holds %s, and %s has nothing", t.uid, t.held.text, where)
		case t.held != nil:
			n++
			if text := written(stored); text != t.held.text {
				w.failf("%s holds %s, and %s has %s", t.uid, t.held.text, where, text)
			}
		}
	}
	if n != len(state.Pods) {
		w.failf("%s has %d pods, want %d: %v", where, len(state.Pods), n, uids(state))
	}
}

func uids(state allocation.State) (out []types.UID) {
	for uid := range state.Pods {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

func (w *walk) file() {
	state, err := store.ReadState(w.path())
	if errors.Is(err, fs.ErrNotExist) && w.desk.store.State().Version == 0 {
		return
	}
	if err != nil {
		w.failf("%v", err)
		return
	}
	if state.Version != w.desk.store.State().Version {
		w.failf("the file has version %d, the store %d",
			state.Version, w.desk.store.State().Version)
	}
	w.compare("the file", state)
}

// free checks what the next plan would start from.
func (w *walk) free(held sums) {
	s, err := w.desk.queue.Snapshot(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	room := s.Now(&decide.Request{Demand: decide.DemandOf(wanting(s.Ledger.Resources()), nil, s.Rules)})
	if got := maskOf(room.Taken.CPUs()); got != held.cpus {
		w.failf("CPUs %s are taken to the next pod, want %s", got.set(), held.cpus.set())
	}
	if w.site.ownCPUs {
		want := w.site.online() &^ w.site.reserved &^ held.cpus
		isolated := room.CPUs.For(topology.CPURules{Isolated: true})
		for _, pool := range []struct {
			name   string
			static *cpumanager.Static
			want   mask
		}{
			{"free", room.CPUs, want &^ w.site.isolated},
			{"isolated and free", isolated, want & w.site.isolated},
		} {
			if got := maskOf(pool.static.Free(room.Taken.CPUs())); got != pool.want {
				w.failf("CPUs %s are %s to the next pod, want %s", got.set(), pool.name,
					pool.want.set())
			}
		}
		if both := maskOf(room.CPUs.Shared(room.Taken.CPUs())) & w.site.isolated; both != 0 {
			w.failf("CPUs %s are isolated and shared", both.set())
		}
	}
	n := 0
	for resource, ids := range room.Taken.Devices() {
		for id := range ids {
			n++
			if !held.devices[resource+"/"+id] {
				w.failf("%s/%s is taken to the next pod, and nobody holds it", resource, id)
			}
		}
	}
	if n != len(held.devices) {
		w.failf("%d devices are taken to the next pod, want %v", n, held.devices)
	}
	if held.unclear {
		return
	}
	memory := map[string]uint64{}
	for _, b := range room.Taken.Memory() {
		memory[b.Nodes.String()+" "+string(b.Resource)] += b.Size
	}
	for of, size := range held.memory {
		if memory[of] != size {
			w.failf("%d bytes of %s are taken to the next pod, want %d", memory[of], of, size)
		}
		delete(memory, of)
	}
	if len(memory) > 0 {
		w.failf("memory is taken to the next pod, and nobody holds it: %v", memory)
	}
}

// decided checks that a pod without a final word has a reason to wait.
func (w *walk) decided(t *tenant) {
	if !t.known || t.leaving || t.said == decide.Admit || t.said == decide.Reject {
		return
	}
	if w.owes(t) {
		t.owedAt = time.Now()
	}
	if w.hinders(t).Unknown {
		t.since = time.Now()
	}
	ended := func(o *tenant) bool { return o.known && o.leaving && o.ended }
	if w.wait == 0 && slices.ContainsFunc(w.tenants, ended) {
		t.since = time.Now()
		return // to the kubelet what that one holds is free, so that this one may wait for it
	}
	// It looks for a place anew; when CPUs come or go, after an Allocate under way.
	for _, again := range []time.Time{t.troubledAt, w.replugged.Add(10 * time.Second)} {
		if w.wait == 0 && again.After(t.since) {
			t.since = again
		}
	}
	// A plugin is asked for a preference for 5 s, about the pod or one before it, and Allocate takes 10 s.
	began, most := t.since, w.wait+15*time.Second
	if w.hasClaims {
		most += record.LookTimeout // a pod before it may be asked about its claims first
	}
	if len(t.claims) > 0 {
		most += claimTime
	}
	if !t.owedAt.Before(began) && time.Since(t.owedAt) < 2*time.Minute {
		began, most = t.owedAt, most+time.Minute // for the plugin to hear of it, and for Allocate
	}
	if age := time.Since(began); age > most && !t.alive {
		w.failf("%s (%s) waits for %v", t.uid, w.state(t), age)
	}
	if t.inflight && w.slow(t) || w.wait == 0 && w.owes(t) || w.inLine(t) {
		return // whatever was said of it before
	}
	if t.said == decide.Wait {
		if no := w.mayWait(t); no != "" {
			w.failf("%s waits with %s, and %s", t.uid, t.reason, no)
		}
		return
	}
	w.failf("%s was not decided on, and no plugin of its hangs", t.uid)
}
