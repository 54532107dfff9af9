package podworker

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// startLimiter lets about as many pods start at once as the runtime works on. More would make no
// pod start sooner and all of them later: if sixty pods come together, all would have a sandbox
// before the first has a container.
//
// A pod has a place from before its first sandbox until it has nothing to do: it runs, waits for an
// init container, or failed. The number of places follows the runtime's answers, as TCP Vegas
// estimates the capacity of a path (Brakmo and Peterson, 1995): the longer a sandbox takes compared
// with the best time, the more of the places only wait within the runtime. Critical and static pods
// come first, then the oldest.
//
// Pods that start again have places of their own (Workers.restarts), so that a thousand crash loops
// leave the machine to a new pod. There, the pod that had a place most recently goes to the end: no
// pod starves, and one that ran for a week goes before the crash loops.
//
// A pod that waits for anything but the runtime returns its place (Actuator.Do). If it keeps the
// place for long otherwise, because a volume hangs, it continues to start and no longer counts. The
// methods may be called from anywhere.
type startLimiter struct {
	mu     sync.Mutex // guards what follows
	limit  int
	best   time.Duration // the shortest time of a sandbox; 0: none was made yet
	usual  time.Duration // the recent mean; 0: none was made yet
	places map[*worker]time.Time
	queue  []waiting        // first the one that is next
	waits  map[*worker]bool // those in the queue
	// ceases is the time when the next place ceases to count; zero while no pod waits for one.
	// changed has a value when that changes; capacity 1.
	ceases  time.Time
	changed chan struct{}
}

// waiting is a worker without a place.
type waiting struct {
	worker *worker
	served time.Time // zero: never
	urgent bool
}

const (
	// leastPlaces and mostPlaces bound the number of pods that start at once.
	leastPlaces = 3
	mostPlaces  = 256
	// restartPlaces is the least number of pods whose containers start again at once.
	restartPlaces = 8
	// If fewer places than fewWaiting wait within the runtime, there is one more place; if more
	// than manyWaiting, one less.
	fewWaiting, manyWaiting = 1, 2
	// A place counts for startsFor times the usual duration of a sandbox, within these bounds.
	startsFor             = 8
	leastStart, mostStart = time.Second, 10 * time.Second
)

func newStartLimiter(least int) *startLimiter {
	return &startLimiter{limit: max(least, runtime.NumCPU()), places: map[*worker]time.Time{},
		waits: map[*worker]bool{}, changed: make(chan struct{}, 1)}
}

// run gives out places when others cease to count, until ctx ends.
func (s *startLimiter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-await.At(s.next()):
			s.give(time.Now())
		}
	}
}

func (s *startLimiter) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ceases
}

func (s *startLimiter) give(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(now)
}

// enter reports whether the worker has a place. If not, it is woken once it has one.
func (s *startLimiter) enter(p *worker, pod *v1.Pod, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.places[p]; !has && !s.waits[p] {
		s.waits[p] = true
		w := waiting{worker: p, served: p.served, urgent: podspec.IsCritical(pod)}
		at, _ := slices.BinarySearchFunc(s.queue, w, waiting.compare)
		s.queue = slices.Insert(s.queue, at, w)
	}
	s.giveLocked(now)
	return s.hasLocked(p)
}

// has reports whether the worker has a place.
func (s *startLimiter) has(p *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasLocked(p)
}

func (s *startLimiter) hasLocked(p *worker) bool {
	_, has := s.places[p]
	return has
}

// leave returns the worker's place, or takes it from the queue.
func (s *startLimiter) leave(p *worker, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, had := s.places[p]
	delete(s.places, p)
	if s.waits[p] {
		delete(s.waits, p)
		s.queue = slices.DeleteFunc(s.queue, func(w waiting) bool { return w.worker == p })
	}
	if had {
		s.giveLocked(now)
	}
}

// took adapts the number of places to the time that a sandbox took.
func (s *startLimiter) took(d time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = max(d, time.Millisecond)
	if s.best == 0 {
		s.best, s.usual = d, d
	}
	s.best = min(d, s.best+s.best/64) // a runtime may be slower for good
	s.usual += (d - s.usual) / 4
	switch waiting := float64(s.limit) * (1 - float64(s.best)/float64(d)); {
	case waiting < fewWaiting && len(s.queue) > 0:
		s.limit = min(s.limit+1, mostPlaces)
	case waiting > manyWaiting:
		s.limit = max(s.limit-1, leastPlaces)
	}
	s.giveLocked(now)
}

// giveLocked gives free places to the next in the queue, and tells run when another place ceases to
// count.
func (s *startLimiter) giveLocked(now time.Time) {
	lasts := min(max(startsFor*s.usual, leastStart), mostStart)
	counted, ceases := 0, now.Add(lasts)
	for _, since := range s.places {
		if end := since.Add(lasts); end.After(now) {
			counted++
			if end.Before(ceases) {
				ceases = end
			}
		}
	}
	for ; counted < s.limit && len(s.queue) > 0; counted++ {
		next := s.queue[0].worker
		s.queue = s.queue[1:]
		delete(s.waits, next)
		s.places[next] = now
		next.wakeUp()
	}
	if len(s.queue) == 0 {
		ceases = time.Time{}
	}
	if !ceases.Equal(s.ceases) {
		s.ceases = ceases
		await.Wake(s.changed)
	}
}

// compare puts workers that never had a place first: critical ones, then the oldest. The others
// follow, with the last one that had a place at the end.
func (w waiting) compare(o waiting) int {
	if byServed := w.served.Compare(o.served); byServed != 0 {
		return byServed
	}
	switch {
	case w.urgent == o.urgent:
		return cmp.Compare(w.worker.arrival, o.worker.arrival)
	case w.urgent:
		return -1
	default:
		return 1
	}
}
