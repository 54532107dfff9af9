package claims

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/files"
)

// walk is a node whose agent only has records and calls under way, beside drivers that know what
// they prepared. It is independent of the Manager: all that may come in any order does.
type walk struct {
	*testing.T
	rand    *rand.Rand
	records records
	// first and lines are those of the file; a power cut spares the first of them, so many are synced.
	first  []byte
	lines  [][]byte
	synced int
	// calls under way; a crash forgets them.
	calls map[called]EventKind
	was   map[called]Stage
	// truth is what drivers have prepared in this boot, by driver, with the UID by claim.
	truth map[string]map[types.NamespacedName]types.UID
	down  map[string]bool
	// claims are those at the API server; version makes new UIDs.
	claims  map[types.NamespacedName]Use
	version int
	pods    map[types.UID]*walker
	last    string
}

// walker is a pod: which claims it is reserved for, and whether its containers run.
type walker struct {
	uid     types.UID
	claims  []types.NamespacedName
	runs    bool
	leaving bool
}

var walkDrivers = []string{"a.example.com", "b.example.com", "c.example.com"}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{T: t, rand: rand.New(rand.NewPCG(seed, 1)), records: records{},
		calls: map[called]EventKind{}, was: map[called]Stage{},
		truth: map[string]map[types.NamespacedName]types.UID{}, down: map[string]bool{},
		claims: map[types.NamespacedName]Use{}, pods: map[types.UID]*walker{}}
	for _, d := range walkDrivers {
		w.truth[d] = map[types.NamespacedName]types.UID{}
	}
	w.beginFile()
	for i := range 5 {
		w.makeClaim(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("c", i)})
	}
	return w
}

// beginFile writes all records anew.
func (w *walk) beginFile() {
	first, err := files.EncodeLine("", file{Version: version, Claims: w.records.list()})
	if err != nil {
		w.Fatal(err)
	}
	w.first, w.lines, w.synced = first, nil, 0
}

func (w *walk) makeClaim(key types.NamespacedName) {
	w.version++
	u := Use{Use: claim.Use{Claim: dra.Claim{Namespace: key.Namespace, Name: key.Name,
		UID: types.UID(fmt.Sprint(key.Name, "-", w.version))}}, Skips: claim.Skips{}}
	for _, d := range walkDrivers {
		if w.rand.IntN(2) == 0 {
			u.Devices = append(u.Devices, claim.Device{Request: "r", Driver: d, Pool: "n",
				Name: fmt.Sprint("d", w.version)})
			u.Skips[d] = claim.Skip{Prepare: w.rand.IntN(12) == 0, Unprepare: w.rand.IntN(12) == 0}
		}
	}
	w.claims[key] = u
}

// must takes an event that cannot fail.
func (w *walk) must(key types.NamespacedName, e Event) {
	if err := w.take(key, e); err != nil {
		w.Fatalf("%s: %v", w.last, err)
	}
}

func (w *walk) take(key types.NamespacedName, e Event) error {
	next, err := Step(w.records[key], e)
	if err != nil {
		return err
	}
	if w.records[key] = next; next == nil {
		delete(w.records, key)
	}
	line, err := encodeChange(records{key: next})
	if err != nil {
		w.Fatal(err)
	}
	w.lines = append(w.lines, line)
	if e.Kind != WasPrepared && e.Kind != WasUnprepared && e.Kind != NotSent {
		w.synced = len(w.lines)
	}
	return nil
}

// step does one thing at random.
func (w *walk) step() {
	switch n := w.rand.IntN(100); {
	case n < 10:
		w.newPod()
	case n < 25:
		w.use()
	case n < 50:
		w.send()
	case n < 75:
		w.land()
	case n < 85:
		w.leave()
	case n < 90:
		d := w.driver()
		w.down[d] = !w.down[d]
	case n < 94:
		w.renew()
	case n < 96:
		w.forget()
	case n < 99:
		w.crash(false)
	default:
		w.crash(true)
	}
}

func (w *walk) driver() string { return walkDrivers[w.rand.IntN(len(walkDrivers))] }

// pick returns one of the keys; false: there are none.
func pick[K comparable, V any](w *walk, all map[K]V, less func(a, b K) int) (key K, ok bool) {
	if len(all) == 0 {
		return key, false
	}
	keys := slices.SortedFunc(maps.Keys(all), less)
	return keys[w.rand.IntN(len(keys))], true
}

func byText[K any](a, b K) int {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	default:
		return 0
	}
}

func (w *walk) newPod() {
	if len(w.pods) > 6 {
		return
	}
	w.version++
	p := &walker{uid: types.UID(fmt.Sprint("p", w.version))}
	for key := range w.claims {
		if w.rand.IntN(3) == 0 {
			p.claims = append(p.claims, key)
		}
	}
	w.pods[p.uid] = p
}

// use has a pod become a user of its claims, and run once all of them are prepared.
func (w *walk) use() {
	uid, ok := pick(w, w.pods, byText[types.UID])
	if !ok || w.pods[uid].leaving {
		return
	}
	p := w.pods[uid]
	w.last = fmt.Sprintf("pod %s uses %v", uid, p.claims)
	for _, key := range p.claims {
		err := w.take(key, Event{Kind: Used, Use: w.claims[key], User: User{UID: uid}})
		r := w.records[key]
		refused := r != nil && (r.UID != w.claims[key].UID || r.unpreparing())
		if (err != nil) != refused {
			w.Fatalf("%s: %s is refused with %v, and should be %t", w.last, key, err, refused)
		}
		if err != nil {
			return
		}
	}
	p.runs = true
	for _, key := range p.claims {
		p.runs = p.runs && w.records[key].prepared()
	}
}

// send begins a call that is owed.
func (w *walk) send() {
	key, ok := pick(w, w.records, byText[types.NamespacedName])
	if !ok {
		return
	}
	r := w.records[key]
	for kind, owed := range map[EventKind][]string{
		PrepareSent: r.ToPrepare(), UnprepareSent: r.ToUnprepare(),
	} {
		for _, d := range owed {
			c := called{key, d}
			if w.calls[c] != "" {
				continue
			}
			w.last = fmt.Sprintf("%s %v", kind, c)
			w.was[c] = r.driver(d).Stage
			w.calls[c] = kind
			w.must(key, Event{Kind: kind, Driver: d})
		}
	}
}

// land ends a call, which may have had no effect.
func (w *walk) land() {
	c, ok := pick(w, w.calls, byText[called])
	if !ok {
		return
	}
	kind := w.calls[c]
	delete(w.calls, c)
	w.last = fmt.Sprintf("%s %v ends", kind, c)
	switch {
	case w.down[c.driver]:
		w.must(c.key, Event{Kind: NotSent, Driver: c.driver, Stage: w.was[c]})
	case w.rand.IntN(4) == 0: // it fails, before its effect or after it
		if w.rand.IntN(2) == 0 {
			w.reach(c, kind)
		}
	default:
		w.reach(c, kind)
		e := Event{Kind: WasPrepared, Driver: c.driver, Devices: []dra.Device{{Name: "d"}}}
		if kind == UnprepareSent {
			e = Event{Kind: WasUnprepared, Driver: c.driver}
		}
		w.must(c.key, e)
	}
}

// reach is what a call does at the driver.
func (w *walk) reach(c called, kind EventKind) {
	r := w.records[c.key]
	if r == nil || r.driver(c.driver) == nil || r.driver(c.driver).Skips.Unprepare {
		return // it undoes by itself what it prepared, at any time, and is not waited for
	}
	if kind == UnprepareSent {
		if len(r.active()) > 0 {
			w.Fatalf("%s: unprepared while %v use it", w.last, r.active())
		}
		delete(w.truth[c.driver], c.key)
		return
	}
	if uid, there := w.truth[c.driver][c.key]; there && uid != r.UID {
		w.Fatalf("%s: prepared as %s beside %s", w.last, r.UID, uid)
	}
	w.truth[c.driver][c.key] = r.UID
}

// leave ends a pod, whose containers end first.
func (w *walk) leave() {
	uid, ok := pick(w, w.pods, byText[types.UID])
	if !ok {
		return
	}
	p := w.pods[uid]
	p.runs, p.leaving = false, true
	w.last = fmt.Sprintf("pod %s leaves", uid)
	held := false
	for _, key := range p.claims {
		r := w.records[key]
		never := r != nil && r.has(uid) && len(r.active()) == 1 &&
			!r.inStage(StagePreparing, StagePrepared, StageUnpreparing)
		w.must(key, Event{Kind: Left, User: User{UID: uid}})
		if never && w.records[key] != nil {
			w.Fatalf("%s: %s waits for a driver that was never called", w.last, key)
		}
		held = held || w.records[key] != nil && slices.ContainsFunc(w.records[key].Users,
			func(u User) bool { return u.UID == uid })
	}
	if !held {
		delete(w.pods, uid)
	}
}

// renew has a claim deleted that no pod uses, and another one made of its name.
func (w *walk) renew() {
	key, _ := pick(w, w.claims, byText[types.NamespacedName])
	for _, p := range w.pods {
		if slices.Contains(p.claims, key) {
			return
		}
	}
	w.makeClaim(key)
}

// forget drops what an administrator wants forgotten; the driver is lost, and so is what it has.
func (w *walk) forget() {
	key, ok := pick(w, w.records, byText[types.NamespacedName])
	if !ok {
		return
	}
	for c := range w.calls {
		if c.key == key {
			return // the Manager refuses that
		}
	}
	used := len(w.records[key].active()) > 0
	if err := w.take(key, Event{Kind: Forgotten}); (err != nil) != used {
		w.Fatalf("forgetting %s: %v", key, err)
	}
	if !used {
		for _, d := range walkDrivers {
			delete(w.truth[d], key)
		}
	}
}

// crash ends the agent, and perhaps the machine: calls under way have had an effect or none.
func (w *walk) crash(reboot bool) {
	w.last = fmt.Sprintf("crash, reboot=%t", reboot)
	for c, kind := range w.calls {
		if w.rand.IntN(2) == 0 && !w.down[c.driver] {
			w.reach(c, kind)
		}
	}
	clear(w.calls)
	if reboot {
		w.lines = w.lines[:w.synced+w.rand.IntN(len(w.lines)-w.synced+1)]
	}
	in, err := parse(bytes.Join(append([][]byte{w.first}, w.lines...), nil))
	if err != nil {
		w.Fatalf("%s: %v", w.last, err)
	}
	w.records = records{}
	for _, r := range in.Claims {
		w.records[r.key()] = r
	}
	w.beginFile()
	if !reboot {
		return
	}
	for _, d := range walkDrivers {
		if w.rand.IntN(2) == 0 { // it keeps nothing over a boot
			clear(w.truth[d])
		}
	}
	for key := range w.records {
		w.must(key, Event{Kind: Rebooted})
	}
	for _, p := range w.pods {
		p.runs = false
	}
}

// Whatever comes in whatever order: what a driver has is recorded, what a pod runs with is prepared,
// nothing is unprepared while it is used or prepared as two claims, and in the end nothing is left.
// NUMALET_STEPS is the number of steps.
func TestWalk(t *testing.T) {
	steps := 60_000
	if text := os.Getenv("NUMALET_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for round := range steps / 2000 {
		w := newWalk(t, uint64(round))
		for range 2000 {
			w.step()
			w.check()
		}
		w.end()
	}
	t.Logf("%d steps in %v", steps, time.Since(began))
}
