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

// starts lets about as many pods start at once as the runtime works on. Beyond that a pod's start
// makes no pod sooner and all of them later: of sixty that come together every one would have its
// sandbox before the first has a container.
//
// A pod has a place from before its first sandbox until it has nothing to do: it runs, waits for an
// init container, or failed. The number of places follows what the runtime answers, as TCP Vegas
// finds how much a path takes (Brakmo and Peterson, 1995): the longer a sandbox takes beside what
// one took at best, the more of the places only wait within the runtime. Critical and static pods
// come first, then the oldest.
//
// Pods that have started before take their places from others of these (restarts), so that a
// thousand crash loops leave the machine to a pod that comes. Who was served last is last there,
// which starves nobody, and lets the pod that ran for a week go before the crash loops.
//
// A pod that waits for something else than the runtime gives its place back (Actuator.Do); one that keeps
// it for long otherwise (a volume that hangs) goes on starting and is not counted any more. Its
// methods may be called from anywhere.
type startLimiter struct {
	mu     sync.Mutex // guards what follows
	limit  int
	best   time.Duration // a sandbox's; 0: none was made yet
	usual  time.Duration // likewise, the mean of late
	places map[*worker]time.Time
	queue  []waiting        // first the one that is next
	waits  map[*worker]bool // those in the queue
	// ceases is when the next place ceases to count, zero while nobody waits for one; changed has a
	// value when that is another time. Capacity 1.
	ceases  time.Time
	changed chan struct{}
}

// waiting is a worker that has no place yet.
type waiting struct {
	worker *worker
	served time.Time // zero: never
	urgent bool
}

const (
	// leastPlaces is the least number of pods that start at once, also where each takes long.
	leastPlaces = 3
	mostPlaces  = 256
	// restartPlaces is the least number of pods of which containers start again at once.
	restartPlaces = 8
	// fewWaiting and manyWaiting are how many of the places may wait within the runtime before no
	// more, and fewer, are given.
	fewWaiting, manyWaiting = 1, 2
	// A place counts for startsFor of the usual time of a sandbox, within these bounds.
	startsFor             = 8
	leastStart, mostStart = time.Second, 10 * time.Second
)

func newStartLimiter(least int) *startLimiter {
	return &startLimiter{limit: max(least, runtime.NumCPU()), places: map[*worker]time.Time{},
		waits: map[*worker]bool{}, changed: make(chan struct{}, 1)}
}

// run gives places when others cease to count, until ctx ends.
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

// enter reports whether the worker has a place. If not it is woken when it has one.
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

// leave gives a place back, or does without one.
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

// took learns from how long the runtime took for a sandbox.
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

// giveLocked gives places to those who are next. run sees to the others when a place ceases to count.
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

// compare has who was never served first, then critical pods, then the oldest; of the others who was
// served last comes last.
func (w waiting) compare(o waiting) int {
	if byTurn := w.served.Compare(o.served); byTurn != 0 {
		return byTurn
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
