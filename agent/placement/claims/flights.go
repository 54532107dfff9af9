package claims

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
)

// called is a claim at one of its drivers.
type called struct {
	key    types.NamespacedName
	driver string
}

// flights are the calls that are under way, and what became of the last ones. No two calls for the
// same claim at the same driver overlap.
type flights struct {
	mu       sync.Mutex // guards the fields below
	under    map[called]chan struct{}
	problems map[called]Problem
}

// Problem is why a call did not succeed.
type Problem struct {
	Err error
	// At is when it ended; Retry when it is due again.
	At, Retry time.Time
	// Tries counts failed calls to unprepare in a row.
	Tries int
}

// retries are the pauses between calls to unprepare that fail.
var retries = await.Pauses{First: 2 * time.Second, Last: time.Minute}

func newFlights() *flights {
	return &flights{under: map[called]chan struct{}{}, problems: map[called]Problem{}}
}

// take begins a call for each of those for which none is under way. The others' ends are in busy.
func (f *flights) take(all []called) (taken []called, busy []<-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range all {
		if end := f.under[c]; end != nil {
			busy = append(busy, end)
			continue
		}
		f.under[c] = make(chan struct{})
		taken = append(taken, c)
	}
	return taken, busy
}

// land ends calls.
func (f *flights) land(all []called) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range all {
		close(f.under[c])
		delete(f.under, c)
	}
}

func (f *flights) busy(c called) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.under[c] != nil
}

// note records what became of a call. A call to prepare is not tried again here, and nothing waits
// for that.
func (f *flights) note(c called, kind EventKind, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.problems, c)
		return
	}
	p := f.problems[c]
	p.Err, p.At = err, now
	if kind == UnprepareSent {
		p.Retry = now.Add(retries.After(p.Tries))
		p.Tries++
	}
	f.problems[c] = p
}

// problem returns why the last call failed; the zero value: it did not.
func (f *flights) problem(c called) Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problems[c]
}

// hasten makes what failed due at once.
func (f *flights) hasten(such func(called) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, p := range f.problems {
		if such(c) {
			p.Retry, p.Tries = time.Time{}, 0
			f.problems[c] = p
		}
	}
}

// keep drops the problems of claims that are not known any more.
func (f *flights) keep(all records) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.problems {
		if r := all[c.key]; r == nil || r.driver(c.driver) == nil {
			delete(f.problems, c)
		}
	}
}

// byDriver groups calls, in order of the drivers' names.
func byDriver(all []called) [][]called {
	slices.SortFunc(all, func(a, b called) int {
		return cmp.Or(strings.Compare(a.driver, b.driver),
			strings.Compare(a.key.Namespace, b.key.Namespace),
			strings.Compare(a.key.Name, b.key.Name))
	})
	var out [][]called
	for _, c := range all {
		if n := len(out); n > 0 && out[n-1][0].driver == c.driver {
			out[n-1] = append(out[n-1], c)
			continue
		}
		out = append(out, []called{c})
	}
	return out
}
