package volume

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume/operation"
)

const (
	// measureWait bounds how long a caller waits for the measurement of one volume, and roundWait for
	// that of all.
	measureWait = 2 * time.Second
	roundWait   = 10 * time.Second
	// lookers is how many measurements are waited for at once.
	lookers = 8
	// answerLife is how long an answer counts if no other one comes.
	answerLife = 10 * time.Minute
)

// reading is a measurement of a volume.
type reading[T any] struct {
	key, by string
	measure func() (T, error)
}

// answers has the last answers to measurements. A measurement that hangs is not waited for again, nor
// begun a second time. The zero value is ready.
type answers[T any] struct {
	mu  sync.Mutex
	all map[string]answer[T] // by key
}

type rooms = answers[diskusage.Room]

// answer has the last answer about a volume.
type answer[T any] struct {
	value T
	at    time.Time // of value; zero: there is none
	began time.Time // of the last measurement
	late  bool      // that had no answer in time
}

// of returns the last answer about a volume.
func (r *answers[T]) of(key string) (answer[T], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.all[key]
	return a, !a.at.IsZero() && time.Since(a.at) < answerLife
}

// last returns the last answer about a volume, however old it is.
func (r *answers[T]) last(key string) (answer[T], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.all[key]
	return a, !a.at.IsZero()
}

// look carries out measurements that are not under way, and forgets all other volumes. It waits for
// each of them measureWait at most. Volumes that answered in time come first, and then those that
// were not measured for longest.
func (r *answers[T]) look(ctx context.Context, c *calls, all []reading[T], looked func(string, time.Duration)) {
	all = r.inOrder(all)
	ctx, cancel := context.WithTimeout(ctx, roundWait)
	defer cancel()
	free := make(chan struct{}, lookers)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, one := range all {
		name := "measure " + one.key
		if c.runs(name) {
			continue
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		waiting.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, measureWait)
			defer cancel()
			r.begin(one.key)
			_ = c.do(ctx, name, func() error { // its answer is kept
				began := time.Now()
				value, err := one.measure()
				if err == nil {
					looked(one.by, time.Since(began))
				}
				r.put(one.key, value, err)
				return err
			})
		})
	}
}

// inOrder sorts measurements, and keeps only what is known of their volumes.
func (r *answers[T]) inOrder(all []reading[T]) []reading[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[string]answer[T], len(all))
	for _, one := range all {
		now[one.key] = r.all[one.key]
	}
	r.all = now
	return slices.SortedStableFunc(slices.Values(all), func(a, b reading[T]) int {
		x, y := now[a.key], now[b.key]
		if x.late != y.late {
			return map[bool]int{true: 1, false: -1}[x.late]
		}
		return cmp.Compare(x.began.UnixNano(), y.began.UnixNano())
	})
}

// begin notes that a measurement begins; until it ends, it is late.
func (r *answers[T]) begin(key string) {
	r.change(key, func(a *answer[T]) { a.began, a.late = time.Now(), true })
}

// put notes the end of a measurement. An error other than operation.Unanswered is an answer too.
func (r *answers[T]) put(key string, value T, err error) {
	away := operation.IsUnanswered(err)
	r.change(key, func(a *answer[T]) {
		a.late = away || time.Since(a.began) > measureWait
		switch {
		case err == nil:
			a.value, a.at = value, time.Now()
		case !away:
			a.at = time.Time{}
		}
	})
}

// change changes what is known of a volume that is still measured.
func (r *answers[T]) change(key string, do func(a *answer[T])) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, is := r.all[key]; is {
		do(&a)
		r.all[key] = a
	}
}
