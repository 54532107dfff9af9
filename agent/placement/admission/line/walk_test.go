package line

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

const (
	walkSteps  = 20_000 // in all; NUMALET_STEPS says otherwise
	oneWalk    = 5_000
	mostPods   = 14
	storyLines = 40
)

// Whatever happens to the pods in line, in whatever order: nothing is had twice, no pod waits for nothing, and
// nothing is left in the end. NUMALET_STEPS_SEED repeats one walk; in every other walk
// pods have resource claims.
func TestWalk(t *testing.T) {
	steps := walkSteps
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
		newWalk(t, seed).run(steps)
		return
	}
	began, seen := time.Now(), map[string]int{}
	var mu sync.Mutex // guards seen
	t.Run("seed", func(t *testing.T) {
		for seed := range (steps + oneWalk - 1) / oneWalk {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				w := newWalk(t, uint64(seed))
				w.run(min(oneWalk, steps-seed*oneWalk))
				mu.Lock()
				defer mu.Unlock()
				for what, n := range w.seen {
					seen[what] += n
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d steps in %v: %v", steps, time.Since(began).Round(time.Millisecond), seen)
	for _, what := range []string{"resize granted", "resize deferred", "resize infeasible"} {
		if seen[what] == 0 {
			t.Errorf("no walk has come to a %s", what)
		}
	}
	for _, state := range []record.State{record.Asking, record.Inquiring, record.Behind, record.Allocating, record.Waiting,
		record.PendingRelease, record.Retrying, record.Deferred, record.HeldBack, record.Admitted, record.Resizing, record.Rejected, record.Finishing,
		record.Canceling, record.Unreleased} {
		if seen[state.String()] == 0 {
			t.Errorf("no walk has come to a pod that is %s", state)
		}
	}
}

type walk struct {
	*world
	r     *rand.Rand
	seed  uint64
	pods  int // so far
	step  int
	story []string
	seen  map[string]int
	texts map[types.UID]string // what pods ask for
	// claims: pods use resource claims. claimLacks says what keeps a pod's from being used.
	claims     bool
	claimLacks map[types.UID]claim.Lack
}

func newWalk(t *testing.T, seed uint64) *walk {
	wait := 2 * time.Minute
	if seed%4 == 3 {
		wait = 0
	}
	w := &walk{
		world: newWorld(t, wait), r: rand.New(rand.NewPCG(seed, 7)), seed: seed, seen: map[string]int{},
		claims: walkHasClaims(seed), claimLacks: map[types.UID]claim.Lack{}, texts: map[types.UID]string{},
	}
	w.sized = func(what string, granted types.UID) {
		if w.seen[what]++; granted != "" {
			w.granted(granted)
		}
	}
	w.follow()
	if seed%3 == 0 {
		w.play("without " + schedulerPreempts)
	}
	w.play("machine memory=10Gi")
	w.play("node gpu 6 prefers")
	w.play("node nic 4" + []string{" prefers", ""}[seed%2])
	return w
}

func (w *walk) run(steps int) {
	w.t.Helper()
	for w.step = range steps {
		w.move()
		if w.check(); w.t.Failed() {
			w.t.Fatalf("step %d of seed %d:\n%s\n%s", w.step, w.seed, strings.Join(w.story, "\n"),
				strings.Join(w.shown(), "\n"))
		}
	}
	w.end()
}

// plays has happen what a story would say.
func (w *walk) plays(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	w.story = append(w.story, "> "+line)
	w.play(line)
	for _, said := range w.said {
		w.story = append(w.story, "    "+said)
	}
	w.said = nil
	if len(w.story) > 2*storyLines {
		w.story = slices.Delete(w.story, 0, len(w.story)-storyLines)
	}
}

// one returns a pod in line, one that only the store knows, or one of which nothing is known.
func (w *walk) one() types.UID {
	if stored := slices.Sorted(maps.Keys(w.state.Pods)); len(stored) > 0 && w.r.IntN(4) == 0 {
		return stored[w.r.IntN(len(stored))]
	}
	if len(w.Order) == 0 {
		return "nobody"
	}
	return w.Order[w.r.IntN(len(w.Order))].Pod.UID
}

func (w *walk) move() {
	switch n := w.r.IntN(100); {
	case n < 25 && len(w.Order) < mostPods:
		w.comes()
	case n < 60:
		w.returns()
	case n < 68:
		w.plays("leaves %s %s", w.one(), []string{"", "ended"}[w.r.IntN(2)])
	case n < 80:
		uid := w.one()
		for _, e := range w.Order { // those go first that have ended, so that others find room
			if e.State.Goes() && !e.State.UnderWay() || e.State == record.Rejected {
				uid = e.Pod.UID
			}
		}
		w.plays("gone %s", uid)
	case n < 82:
		w.resizes()
	case n < 84:
		w.plays("lacks %s %s", w.one(), []string{"?", "a secret"}[w.r.IntN(2)])
	case n < 87:
		w.plays("finds %s", w.one())
	case n < 89 && w.claims:
		w.claimChanges()
	case n == 89:
		w.comesBack()
	case n < 92:
		w.plays("node gpu %d prefers", []int{0, 4, 6}[w.r.IntN(3)])
	default:
		w.plays("after %v", []time.Duration{time.Millisecond, record.Patience, time.Second, 20 * time.Second}[w.r.IntN(4)])
	}
}

// comesBack has the agent start again. Pods that were admitted mostly run, some have ended meanwhile and do not
// come again; the others come as they did.
func (w *walk) comesBack() {
	before := slices.Clone(w.Order)
	w.plays("restart")
	w.follow()
	for _, e := range before {
		text := w.texts[e.Pod.UID]
		if e.State == record.Admitted {
			text += " runs"
		}
		if e.State != record.Rejected && !e.State.Goes() && w.r.IntN(8) > 0 {
			w.plays("submit %s %s", e.Pod.Name, text)
		}
	}
}

// comes has a pod come that asks for what is scarce. Its objects may not be there.
func (w *walk) comes() {
	w.pods++
	name := fmt.Sprint("p", w.pods)
	if w.r.IntN(6) == 0 {
		w.lacks[types.UID(name)] = decide.Lack{Unknown: true}
	}
	var words []string
	for _, wanted := range []struct {
		resource string
		most     int
	}{{"cpu", 4}, {"gpu", 3}, {"nic", 2}} {
		if n := w.r.IntN(wanted.most); n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", wanted.resource, n))
		}
	}
	if n := w.r.IntN(4); n > 0 && !strings.HasPrefix(strings.Join(words, " "), "cpu=") {
		words = append(words, fmt.Sprintf("memory=%dGi", n))
	}
	if w.claims && w.r.IntN(3) == 0 {
		words = append(words, "claims")
	}
	if w.r.IntN(3) == 0 {
		words = append(words, fmt.Sprintf("owner=set-%d", w.r.IntN(3)))
	}
	switch w.r.IntN(12) {
	case 0:
		words = append(words, "runs")
	case 1:
		words = append(words, "critical")
	}
	w.texts[types.UID(name)] = strings.Join(words, " ")
	w.plays("submit %s %s", name, strings.Join(words, " "))
}

// resizes has a pod ask for more or fewer CPUs or memory than it has, or for what it has.
func (w *walk) resizes() {
	uid := w.one()
	text, known := w.texts[uid]
	if !known {
		return
	}
	next := regexp.MustCompile(`memory=\d`).ReplaceAllString(text, fmt.Sprint("memory=", 1+w.r.IntN(5)))
	if strings.HasPrefix(text, "cpu=") { // more than 9 are infeasible
		next = regexp.MustCompile(`cpu=\d+`).ReplaceAllString(text, fmt.Sprint("cpu=", []int{1, 2, 3, 4, 6, 12}[w.r.IntN(6)]))
	}
	w.plays("resize %s %s", uid, next)
}

// returns has a call return: mostly with what was wanted.
func (w *walk) returns() {
	if len(w.calls) == 0 {
		return
	}
	uids := slices.Sorted(maps.Keys(w.calls))
	uid := uids[w.r.IntN(len(uids))]
	how := []string{"away", "no", "disk", "late"}[w.r.IntN(4)]
	if _, assigns := w.calls[uid].(record.Assign); assigns && w.claims && w.r.IntN(2) == 0 {
		how = []string{"busy", "replaced"}[w.r.IntN(2)]
	}
	switch f := w.calls[uid].(type) {
	case record.Ask:
		if w.r.IntN(6) == 0 {
			w.plays("fails %s %s", uid, how)
			return
		}
		ids := slices.Clone(f.Available)
		w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		w.plays("back %s %s", uid, strings.Join(ids[:min(f.Size, len(ids))], " "))
	case record.Inquire:
		delete(w.lacks, uid)
		if w.r.IntN(3) == 0 {
			w.lacks[uid] = decide.Lack{Why: "no secret"}
		}
		w.plays("back %s", uid)
	case record.RecordResources:
		if w.r.IntN(6) == 0 {
			w.plays("fails %s disk", uid)
			return
		}
		w.plays("back %s", uid)
		amounts := f.Resources.Containers["main"].Limits
		text := regexp.MustCompile(`memory=\d\w*`).ReplaceAllString(w.texts[uid], "memory="+amounts.Memory().String())
		w.texts[uid] = regexp.MustCompile(`cpu=\d+`).ReplaceAllString(text, "cpu="+amounts.Cpu().String())
	case record.Assign, record.DropRecord:
		if w.r.IntN(6) == 0 {
			w.plays("fails %s %s", uid, how)
			if again, ok := w.calls[uid].(record.Assign); ok && how != "replaced" {
				w.t.Errorf("%v is assigned again at once", again.Pod)
			}
			return
		}
		w.plays("back %s", uid)
	default:
		w.plays("back %s", uid)
	}
}

// awaited are the states that have a time, beside those in which a call is under way.
var awaited = []record.State{record.Behind, record.Waiting, record.PendingRelease, record.Retrying, record.Deferred,
	record.HeldBack, record.Unreleased}

// check checks what is always true when the line has taken a step.
func (w *walk) check() {
	w.t.Helper()
	cpus, devices := map[int]types.UID{}, map[string]types.UID{}
	for _, e := range w.Order {
		uid := e.Pod.UID
		w.seen[e.State.String()]++
		if _, calls := w.calls[uid]; calls != e.State.UnderWay() {
			w.t.Errorf("%s is %s; a call is under way for it: %v", uid, e.State, calls)
		}
		if next, ok := w.Next(); !e.Tries.Due.IsZero() && (!ok || next.After(e.Tries.Due)) {
			w.t.Errorf("%s is due at %v, and the line wants to be woken at %v", uid, e.Tries.Due, next)
		}
		if timed := e.State.UnderWay() || slices.Contains(awaited, e.State); !timed && !e.Tries.Due.IsZero() {
			w.t.Errorf("%s is %s and due at %v", uid, e.State, e.Tries.Due)
		}
		if at := e.Question.Asked.Add(record.Patience); e.StopsLine() && !w.now.Before(at) {
			w.t.Errorf("%s stops the line for %v", uid, w.now.Sub(e.Question.Asked))
		}
		if e.State == record.Behind && !w.IsBehind(e, w.View) {
			w.t.Errorf("%s stands in line behind nobody", uid)
		}
		if e.State == record.Waiting && e.Cause == decide.ForResources && w.Ledger.Pods(allocation.Terminating) == 0 {
			w.t.Errorf("%s waits for pods that terminate, and none does", uid)
		}
		if e.State == record.Queued && !w.stopped(e) {
			w.t.Errorf("%s is not decided on", uid)
		}
		w.checkClaims(e)
		w.checkResize(e)
		entry, _ := w.Ledger.Get(uid)
		if w.step%8 == 0 { // it takes as long as the step
			if want := e.Accounted(w.state.Pods[uid]); !reflect.DeepEqual(entry, want) {
				w.t.Errorf("the ledger has %+v of %s, want %+v", entry, uid, want)
			}
		}
		held := entry.Assigned
		if e.Claims() {
			continue // terminating pods may have it still
		}
		for _, cpu := range held.CPUs().List() {
			if other, taken := cpus[cpu]; taken {
				w.t.Errorf("CPU %d is %s's and %s's", cpu, other, uid)
			}
			cpus[cpu] = uid
		}
		for name, ids := range held.Devices() {
			for id := range ids {
				if other, taken := devices[name+id]; taken {
					w.t.Errorf("%s of %s is %s's and %s's", id, name, other, uid)
				}
				devices[name+id] = uid
			}
		}
	}
	w.promised(devices)
}

// checkResize checks that no resize waits without end, and none that has room.
func (w *walk) checkResize(e *Entry) {
	if !e.Resizes() {
		return
	}
	z, again := e.Resize, e.Resize.Retry
	next, ok := w.Next()
	switch {
	case z.Due:
		w.t.Errorf("the resize of %s is not decided on", e.Pod.UID)
	case z.Promised && w.Wait <= 0:
		w.t.Errorf("a resize of %s is promised where pods do not wait", e.Pod.UID)
	case z.Promised && (!ok || next.After(z.Since.Add(w.Wait))), !again.IsZero() && (!ok || next.After(again)):
		w.t.Errorf("the resize of %s is due later than %v", e.Pod.UID, next)
	}
	if !again.IsZero() || len(resizes{w.Line}.claims()) > 0 || slices.ContainsFunc(w.Order, func(o *Entry) bool { return o != e && o.Resizes() }) {
		return
	}
	s := w.Snapshot(w.View, w.Ledger)
	r := w.Request(e)
	if d := s.Resize(&r, z.Wanted); d.Reason == "" {
		w.t.Errorf("the resize of %s has room", e.Pod.UID)
	}
}

// granted checks that memory that grows has room, beside all that pods have.
func (w *walk) granted(resized types.UID) {
	total := allocation.AddRequests(w.Ledger.Requests(allocation.Held), w.Ledger.Requests(allocation.Terminating))
	has, most := total[v1.ResourceMemory], w.View.Hardware.Allocatable[v1.ResourceMemory]
	e := w.Find(resized)
	if _, grows := e.Grows()[v1.ResourceMemory]; grows && has.Cmp(most) > 0 {
		w.t.Errorf("%s grows, and pods have %s of %s", resized, has.String(), most.String())
	}
}

// promised checks that no claim is to what another pod has that does not terminate, or claims.
func (w *walk) promised(devices map[string]types.UID) {
	claimed := sets.New[string]()
	for _, e := range w.Order {
		if !e.Claims() || e.State.Goes() || e.State.UnderWay() { // what returns has it looked at again
			continue
		}
		for name, ids := range allocation.HoldingsOf(e.Has.Pod).Devices() {
			for id := range ids {
				holder := w.Find(devices[name+id])
				if holder != nil && !holder.State.Goes() || claimed.Has(name+id) {
					w.t.Errorf("%s claims %s of %s, which another pod has", e.Pod.UID, id, name)
				}
				claimed.Insert(name + id)
			}
		}
	}
}

// stopped reports whether a pod before this one stops the line.
func (w *walk) stopped(e *Entry) bool {
	for _, o := range w.Order {
		if o == e {
			return false
		}
		if o.StopsLine() {
			return true
		}
	}
	return false
}

// end has all calls return and all pods go.
func (w *walk) end() {
	w.t.Helper()
	w.plays("node gpu 6 prefers")
	for range 10 * mostPods {
		for _, uid := range slices.Sorted(maps.Keys(w.calls)) {
			if w.calls[uid] != nil {
				w.plays("back %s", uid)
			}
		}
		for _, e := range slices.Clone(w.Order) {
			w.plays("gone %s", e.Pod.UID)
		}
		for _, uid := range slices.Sorted(maps.Keys(w.state.Pods)) {
			if w.Find(uid) == nil {
				w.plays("gone %s", uid)
			}
		}
		w.plays("after 1s")
	}
	if len(w.Order) > 0 || len(w.state.Pods) > 0 || len(w.follows) > 0 || len(slices.Collect(maps.Keys(maps.Collect(w.Ledger.All())))) > 0 {
		w.t.Errorf("left are %v, recorded %v", w.shown(), w.state.Pods)
	}
}
