package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/allocation/store"
	"github.com/numalet/numalet/agent/claims"
	"github.com/numalet/numalet/agent/claims/claim"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/released"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
)

// Steps in all, and in each walk. "make walk" takes a million.
const (
	allSteps   = 200_000
	shortSteps = 20_000
	walkSteps  = 10_000
)

// Whatever happens to pods, plugins, the agent and the machine, in whatever order: nothing is held
// twice, nothing is held for nobody, and free is all that is not assigned. NUMALET_STEPS is how
// many steps are taken. NUMALET_STEPS_SEED repeats one walk; when several pods wait for plugins at
// once, the order of the answers is not repeated.
func TestRandomSteps(t *testing.T) {
	steps := allSteps
	if testing.Short() || raceDetector {
		steps = shortSteps
	}
	if text := os.Getenv("NUMALET_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("NUMALET_STEPS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		walkAt(t, seed, steps, newTally())
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little is alive, and much is thrown away
	all := newTally()
	began := time.Now()
	t.Run("seed", func(t *testing.T) {
		for seed := range (steps + walkSteps - 1) / walkSteps {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				walkAt(t, uint64(seed), min(walkSteps, steps-seed*walkSteps), all)
			})
		}
	})
	t.Logf("%d steps in %v: %v", steps, time.Since(began).Round(time.Second), all.counts)
	if !t.Failed() && steps >= shortSteps {
		all.check(t)
	}
}

// tally counts what came about, over all walks.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (y *tally) add(counts map[string]int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, n := range counts {
		y.counts[name] += n
	}
}

// check finds kinds of events that hardly occurred: of those the walks say nothing.
func (y *tally) check(t *testing.T) {
	for _, m := range moves {
		if y.counts["step "+m.name] < 3 {
			t.Errorf("%d steps %q are too few to mean anything", y.counts["step "+m.name], m.name)
		}
	}
	for _, name := range []string{
		"Admit", "Reject", "Wait " + decide.ReasonWaitPlugin, "Wait " + decide.ReasonWaitResources,
		"Wait " + decide.ReasonWaitDevices, "Wait " + decide.ReasonWaitStore, "Wait " + ReasonWaitObjects,
		"Wait for room", "asked what it needs", "kept its own", "adopted",
		"has CPUs", "isolated CPUs", "padded CPUs", "has memory", "has devices", "commit torn",
		"told of releases", "waited for a release", "in line", "question without an answer",
		"chosen devices",
	} {
		if y.counts[name] < 10 {
			t.Errorf("%d times %s are too few to mean anything", y.counts[name], name)
		}
	}
	for _, name := range []string{
		"Wait " + claim.ReasonWaitClaim, "Wait " + claim.ReasonWaitDriver, "has claims", "claim prepared",
		"claim unprepared", "driver answered late", "Reject " + allocation.ReasonOwned,
	} {
		if stepsHaveClaims && y.counts[name] < 10 {
			t.Errorf("%d times %s are too few to mean anything", y.counts[name], name)
		}
	}
}

// walkAt is one walk in a bubble of its own.
func walkAt(t *testing.T, seed uint64, steps int, all *tally) {
	dir := stepsDir(t)
	w := &walk{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: dir, plugins: &stepPlugins{},
		claims: newStepClaims(), unused: map[types.UID]time.Time{}, seen: map[string]int{},
	}
	defer func() {
		if t.Failed() {
			t.Logf("the last steps:\n%s\nto repeat: NUMALET_STEPS_SEED=%d NUMALET_STEPS=%d go "+
				"test -run TestRandomSteps ./agent/admission",
				strings.Join(w.story, "\n"), seed, steps)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w.t, w.needs, w.driversChanged = t, newNeeds(), make(chan struct{}, 1)
		w.run(steps)
	})
	w.seen["told of releases"] += int(w.plugins.released.Load())
	w.seen["question without an answer"] += int(w.plugins.hung.Load())
	w.seen["gave up a release"] += int(w.gaveUp.Load())
	all.add(w.seen)
	all.add(w.claims.counts())
}

// among is how many of so many random cases are gone through: all, or with -short a tenth.
func among(all int) int {
	if testing.Short() {
		return all / 10
	}
	return all
}

// stepsDir is in memory where that is possible: each commit is synced.
func stepsDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", filepath.Base(os.TempDir())+"-steps-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// walk is a node and its model, of which the steps make the same history.
type walk struct {
	t       *testing.T
	r       *rand.Rand
	dir     string
	plugins *stepPlugins
	needs   *needs
	claims  *stepClaims
	site    *site
	boot    int
	tenants []*tenant // in order of arrival
	pods    int       // so far
	broken  bool      // nothing can be written
	wait    time.Duration

	desk stepDesk
	// driversChanged has a value when a driver came or went.
	driversChanged chan struct{}
	unused         map[types.UID]time.Time // since when nobody uses a claim that is prepared
	// releasing are the pods of which the queue has to say that they are released.
	releasing map[types.UID]bool
	checked   uint64 // version of the state
	stale     bool   // what the store must have is not what it had to have at the last check
	step      int
	story     []string
	seen      map[string]int
	gaveUp    atomic.Int64 // devices were given out though their plugin never heard
}

// stepDesk is the agent's part: what a restart replaces.
type stepDesk struct {
	hardware atomic.Pointer[machine.Hardware]
	queue    *Queue
	store    *store.Store
	claims   *claims.Manager
	endless  *endless
	stop     func()

	mu   sync.Mutex
	said []Result
}

const storyLength = 30

func (w *walk) tell(format string, args ...any) {
	line := fmt.Sprintf("%6d ", w.step) + fmt.Sprintf(format, args...)
	if len(w.story) == storyLength*3 {
		w.story = w.story[:copy(w.story, w.story[1:])]
	}
	w.story = append(w.story, line)
}

func (w *walk) failf(format string, args ...any) {
	w.t.Helper()
	w.tell("FAILED "+format, args...)
	w.t.Errorf("step %d: "+format, append([]any{w.step}, args...)...)
}

func (w *walk) bootID() string { return fmt.Sprint("boot-", w.boot, "-") }

func (w *walk) run(steps int) {
	w.plugins.inventory.Store(&devicemanager.Inventory{
		Resources: map[string]devicemanager.Resource{},
	})
	w.site = newSite(w.t, w.r, newHull(w.r), 0)
	w.tell("on %s", w.site.text)
	for at := range stepResources {
		w.plugins.offer(w.r, at, w.site.nodes)
	}
	w.boots()
	w.open()
	defer func() { w.desk.stop() }()
	for w.step = 1; w.step <= steps && !w.t.Failed(); w.step++ {
		w.desk.endless.asked.Store(0)
		w.move()
		synctest.Wait()
		w.check()
	}
	if !w.t.Failed() {
		w.endClaims()
	}
}

func (w *walk) boots() {
	w.boot++
	id := w.bootID()
	w.plugins.boot.Store(&id)
}

// open starts the agent on what the files have: the record is brought in line with what runs, and
// the pods of the sources come, the older ones first.
func (w *walk) open() {
	store, err := store.Open(w.dir)
	if store == nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	done := make(chan error, 4)
	go func() { done <- store.Run(ctx) }()
	w.rebuild(ctx, store)
	w.wait = 2 * time.Minute
	if w.r.IntN(6) == 0 {
		w.wait = 0
	}
	d := &w.desk
	w.needs.begun = map[types.UID]bool{}
	d.said, w.releasing = nil, map[types.UID]bool{}
	d.hardware.Store(&w.site.hardware)
	d.claims = w.openClaims()
	d.endless = &endless{walk: w}
	queue := New(Config{
		Hardware: func() machine.Hardware { return *d.hardware.Load() },
		Rules: topology.Rules{Policy: w.site.policy, Scope: w.site.scope,
			Choosers: topology.Choosers{{Scheduler: stepChooser}}},
		Store: store, Plugins: w.plugins, Needs: w.needs, BootID: w.bootID(), Wait: w.wait,
		Claims: claims.Admission{Manager: d.claims}, Handlers: []decide.Handler{d.endless.check},
		Outcomes: Outcomes{Report: func(r Result) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.said = append(d.said, r)
		}},
	})
	d.queue, d.store = queue, store
	notifier := released.New(released.Config{
		Store: store, Plugins: w.plugins, Settled: queue.Poke,
		Changed: mailbox.Subscribe(store.Changes(), &w.plugins.changed),
		Tell:    func(_, _, _ string) { w.gaveUp.Add(1) },
	})
	d.stop = func() {
		cancel()
		for range cap(done) {
			<-done
		}
	}
	w.stale = true
	w.submitAll()
	go func() { done <- queue.Run(ctx) }()
	go func() { done <- notifier.Run(ctx) }()
	go func() { done <- d.claims.Run(ctx, w.claims.pods) }()
}

func (w *walk) submit(t *tenant) {
	t.known, t.said, t.reason, t.since, t.inflight = true, "", "", time.Now(), false
	t.epoch, t.aside = w.site.epoch, false
	w.entitle()
	w.desk.queue.Submit(t.pod, t.alive)
}

// hear takes what admission said and moves the pods of the model on.
func (w *walk) hear() {
	w.desk.mu.Lock()
	said := w.desk.said
	w.desk.said = nil
	w.desk.mu.Unlock()
	var admitted []*tenant
	for _, r := range said {
		w.tell("  %s: %s %s %s", r.Pod.UID, r.Outcome, r.Reason, r.Message)
		t := w.find(r.Pod.UID)
		if r.Outcome == decide.Released {
			w.told(r.Pod.UID)
			continue
		}
		switch {
		case t == nil || t.going:
			w.failf("%s of %s, which was released", r.Outcome, r.Pod.UID)
			continue
		case t.said == decide.Admit || t.said == decide.Reject:
			w.failf("%s of %s after %s", r.Outcome, t.uid, t.said)
		case t.alive && r.Outcome != decide.Admit:
			w.failf("%s of %s, which runs", r.Outcome, t.uid)
		case r.Outcome == decide.Wait && w.wait == 0 && !w.slow(t) && !isForClaim(r.Reason) &&
			!strings.Contains(r.Message, "knows of the release"):
			w.failf("%s waits, though nobody may", t.uid)
		}
		if isForClaim(r.Reason) && !isForClaim(t.reason) {
			t.troubledAt = time.Now() // the claim of another may end at this moment
		}
		t.said, t.reason = r.Outcome, r.Reason
		t.aside = t.aside || r.Reason == ReasonWaitObjects
		if t.aside && r.Reason == decide.ReasonWaitResources {
			w.seen["Wait for room"]++
		}
		switch r.Outcome {
		case decide.Admit:
			admitted = append(admitted, t)
			w.seen["Admit"]++
		case decide.Wait:
			w.seen["Wait "+r.Reason]++
		default:
			w.seen["Reject"]++
			w.seen["Reject "+r.Reason]++
		}
	}
	w.admit(admitted)
}

// told takes that a pod is released.
func (w *walk) told(uid types.UID) {
	if !w.releasing[uid] {
		w.failf("%s is released, and nobody has asked for that", uid)
	}
	delete(w.releasing, uid)
}

// slow reports whether the answer of a plugin or a driver of the pod has not come, or came late.
func (w *walk) slow(t *tenant) bool {
	if time.Since(t.troubledAt) < claimTime {
		return true
	}
	for i := range stepResources {
		if t.wants(i) &&
			(w.plugins.hangs[i].Load() || time.Since(w.plugins.recovered[i]) < time.Minute) {
			return true
		}
	}
	return false
}

// admit takes what those who were admitted hold now.
func (w *walk) admit(admitted []*tenant) {
	state := w.desk.store.State()
	anew := map[*tenant]*grant{}
	for _, t := range admitted {
		if lack := w.hinders(t); lack.Missing() && !t.inflight {
			w.failf("%s could not start and is admitted", t.uid)
		}
		before := t.held
		stored, has := state.Pods[t.uid]
		switch {
		case has && before != nil && written(stored) == before.text:
			w.seen["kept its own"]++
		case t.keeps || t.alive && before != nil:
			w.failf("%s had %v and has %v", t.uid, before, stored)
		case t.alive && !has:
			w.seen["runs without"]++
		case has:
			t.held, w.stale = grantOf(stored, w.site.epoch), true
			anew[t] = before
		default:
			t.held = nil
			anew[t] = before
		}
		if t.alive {
			w.seen["adopted"]++
		}
		t.keeps = false
	}
	slices.SortFunc(admitted, func(a, b *tenant) int { return a.number - b.number })
	for _, t := range admitted {
		if before, ok := anew[t]; ok {
			w.fresh(t, before)
			if !t.alive && !t.inflight {
				w.fits(t)
			}
		}
		w.count(t.held)
		if !t.alive && !t.leaving && w.r.IntN(8) > 0 {
			t.alive, t.worn = true, t.held
		}
	}
}

func (w *walk) count(g *grant) {
	if g == nil {
		return
	}
	if g.cpus != 0 {
		w.seen["has CPUs"]++
	}
	if len(g.blocks) > 0 {
		w.seen["has memory"]++
	}
	if len(g.devices) > 0 {
		w.seen["has devices"]++
	}
}

// fits checks that what is only counted is not promised beyond what there is.
func (w *walk) fits(last *tenant) {
	var sum amount
	n := int64(0)
	for _, t := range w.tenants {
		if t.known && t.said == decide.Admit {
			sum = sum.plus(t.total(w.site, true))
			n++
		}
	}
	if !sum.within(w.site.amount(), last.total(w.site, true)) || n > w.site.maxPods {
		w.failf("%d pods request %+v with %s, of %+v for %d", n, sum, last.uid, w.site.amount(),
			w.site.maxPods)
	}
}
