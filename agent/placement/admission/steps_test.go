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

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/released"
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
// many steps are taken; in every other walk pods have resource claims. NUMALET_STEPS_SEED repeats one
// walk; when several pods wait for plugins at once, the order of the answers is not repeated.
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
	if whole := all.counts["walk"]*walkSteps >= steps; whole && !t.Failed() && steps >= shortSteps {
		all.check(t)
	}
}

// walkAt is one walk in a bubble of its own.
func walkAt(t *testing.T, seed uint64, steps int, all *tally) {
	dir := stepsDir(t)
	w := &walk{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: dir, plugins: &stepPlugins{},
		claims: newStepClaims(), unused: map[types.UID]time.Time{}, seen: map[string]int{},
		hasClaims: stepsHaveClaims(seed),
	}
	w.seen["walk"] = 1
	if w.hasClaims {
		w.seen["walk with claims"] = 1
	}
	defer func() {
		if t.Failed() {
			withClaims := 0
			if w.hasClaims {
				withClaims = 1
			}
			t.Logf("the last steps:\n%s\nto repeat: NUMALET_STEPS_CLAIMS=%d NUMALET_STEPS_SEED=%d "+
				"NUMALET_STEPS=%d go test -run TestRandomSteps ./agent/placement/admission",
				strings.Join(w.story, "\n"), withClaims, seed, steps)
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
	// replugged is when CPUs last came or went.
	replugged time.Time
	site      *site
	boot      int
	tenants   []*tenant // in order of arrival
	pods      int       // so far
	// hasClaims: pods use resource claims.
	hasClaims bool
	broken    bool // nothing can be written
	wait      time.Duration

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
	said []report.Result
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
		w.passesBy()
		w.check()
	}
	if !w.t.Failed() {
		w.endClaims()
	}
}

// passesBy lets time pass until no plugin that hangs stops the line any more.
func (w *walk) passesBy() {
	stops := func(e *line.Entry) bool { return e.StopsLine() }
	for range 10 {
		if !slices.ContainsFunc(w.desk.queue.admitter.line.Order, stops) {
			return
		}
		time.Sleep(record.Patience)
		synctest.Wait()
	}
	w.failf("plugins stop the line for more than a second")
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
		Facts: Facts{Hardware: func() machine.Hardware { return *d.hardware.Load() }},
		Rules: topology.Rules{Policy: w.site.policy, Scope: w.site.scope,
			Choosers: topology.Choosers{{Scheduler: stepChooser}}},
		Store: store, Plugins: w.plugins, Needs: w.needs, BootID: w.bootID(), Wait: w.wait,
		Claims: claims.Admission{Manager: d.claims}, Handlers: []decide.Handler{d.endless.check},
		Outcomes: Outcomes{Report: func(r report.Result) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.said = append(d.said, r)
		}},
	})
	d.queue, d.store = queue, store
	notifier := released.New(released.Config{
		Store: store, Plugins: w.plugins, Reassignable: queue.Poke,
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
