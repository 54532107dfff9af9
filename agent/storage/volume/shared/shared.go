// Package shared has what CSI volumes and the disks of iSCSI and Fibre Channel have in common: the
// node has a thing once, and several pods use it. A Book knows who does. When the last pod has left
// a thing, a goroutine takes back what the node has of it, and tries again until it succeeds:
//
//	nothing -> wanted by pods -> had by the node
//	   ^                              |
//	   '------- taken back <- unused -'
package shared

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/keymutex"
)

// Pauses are the kubelet's between two tries for a volume.
var Pauses = await.Pauses{First: 500 * time.Millisecond, Last: 2*time.Minute + 2*time.Second}

// Use is a pod's use of a thing.
type Use interface {
	comparable
	PodUID() types.UID
}

// Uses has the uses of a thing, and how far each is.
type Uses[U Use, S any] struct {
	Users  map[U]S
	ending bool // a goroutine takes the thing back
}

func (u *Uses[U, S]) uses() *Uses[U, S] { return u } //nolint:unused // of Entry

// Entry is a pointer to what a Book has of a thing: Uses, and more beside.
type Entry[U Use, S any] interface {
	uses() *Uses[U, S]
	// Had reports whether the node has something of the thing, which is to be taken back.
	Had() bool
}

// Ends says how things are taken back. All functions are required.
type Ends[K comparable] struct {
	// Name names a thing in errors.
	Name func(K) string
	// TakeBack takes back what the node has of a thing. The caller holds the lock of the thing.
	TakeBack func(context.Context, K) error
	// Failed hears why a thing was not taken back, and returns the pause before the next try: the
	// given one or a shorter one.
	Failed func(ctx context.Context, k K, err error, pause time.Duration) time.Duration
	// Used is called after a thing is neither used nor had any more, or is used again while it was
	// taken back. It must not block.
	Used func()
	// Pauses are between tries; zero: Pauses of this package.
	Pauses await.Pauses
}

// Book has things by key. It forgets a thing that no pod uses and of which the node has nothing.
// Tasks takes things back while it runs. All methods are safe for concurrent use; functions that
// Change, Each and Pods call must not call them.
type Book[K comparable, U Use, S any, E Entry[U, S]] struct {
	await.Tasks
	ends  Ends[K]
	blank func() E
	locks keymutex.Mutex[K]

	mu   sync.Mutex // guards the fields below
	all  map[K]E
	news chan struct{} // closed and replaced by Hasten
}

// New returns an empty book. blank makes an entry without users.
func New[K comparable, U Use, S any, E Entry[U, S]](ends Ends[K],
	blank func() E) *Book[K, U, S, E] {
	ends.Pauses = cmp.Or(ends.Pauses, Pauses)
	return &Book[K, U, S, E]{ends: ends, blank: blank, all: map[K]E{}, news: make(chan struct{})}
}

// Change changes what is known of a thing.
func (b *Book[K, U, S, E]) Change(k K, do func(e E)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.all[k]
	if !known {
		e = b.blank()
		e.uses().Users = map[U]S{}
		b.all[k] = e
	}
	do(e)
	if len(e.uses().Users) == 0 && !e.Had() {
		delete(b.all, k)
	}
}

// Each calls do for all things, in no order.
func (b *Book[K, U, S, E]) Each(do func(k K, e E)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.all {
		do(k, e)
	}
}

// Use returns how far a use is; false: there is no such use.
func (b *Book[K, U, S, E]) Use(k K, u U) (s S, has bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, known := b.all[k]; known {
		s, has = e.uses().Users[u]
	}
	return s, has
}

// UsedBy returns the uses of a pod, each with its thing.
func (b *Book[K, U, S, E]) UsedBy(pod types.UID) map[U]K {
	out := map[U]K{}
	b.Each(func(k K, e E) {
		for u := range e.uses().Users {
			if u.PodUID() == pod {
				out[u] = k
			}
		}
	})
	return out
}

// Pods returns the pods with such a use, ascending.
func (b *Book[K, U, S, E]) Pods(which func(k K, e E, s S) bool) []types.UID {
	pods := map[types.UID]bool{}
	b.Each(func(k K, e E) {
		for u, s := range e.uses().Users {
			if which(k, e, s) {
				pods[u.PodUID()] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(pods))
}

// Take locks a thing: it waits until no other caller works on it. done unlocks it.
func (b *Book[K, U, S, E]) Take(ctx context.Context, k K) (done func(), err error) {
	done, err = b.locks.Lock(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("%s is busy: %w", b.ends.Name(k), err)
	}
	return done, nil
}

// EndAllUnused has everything taken back that no pod uses.
func (b *Book[K, U, S, E]) EndAllUnused() {
	var all []K
	b.Each(func(k K, _ E) { all = append(all, k) })
	for _, k := range all {
		b.EndUnused(k)
	}
}

// EndUnused has a thing taken back if no pod uses it.
func (b *Book[K, U, S, E]) EndUnused(k K) {
	begin, gone := false, false
	b.Change(k, func(e E) {
		u := e.uses()
		gone = len(u.Users) == 0 && !e.Had()
		begin = len(u.Users) == 0 && e.Had() && !u.ending
		u.ending = u.ending || begin
	})
	if begin {
		b.Go(func(ctx context.Context) { b.end(ctx, k) })
	}
	if gone {
		b.ends.Used()
	}
}

// end has a thing taken back, until it is, or a pod uses it again.
func (b *Book[K, U, S, E]) end(ctx context.Context, k K) {
	for times := 0; ctx.Err() == nil; times++ {
		news := b.next()
		over, err := b.takeBack(ctx, k)
		if over {
			b.ends.Used()
			return
		}
		pause := b.ends.Failed(ctx, k, err, b.ends.Pauses.After(times))
		waiting, cancel := context.WithTimeout(ctx, pause)
		await.On(waiting, news)
		cancel()
	}
}

// takeBack takes a thing back. over: it is done, or a pod uses the thing.
func (b *Book[K, U, S, E]) takeBack(ctx context.Context, k K) (over bool, err error) {
	done, err := b.Take(ctx, k)
	if err != nil {
		return false, err
	}
	defer done()
	note := func(e E) {
		over = len(e.uses().Users) > 0 || !e.Had()
		e.uses().ending = !over
	}
	if b.Change(k, note); over {
		return true, nil
	}
	err = b.ends.TakeBack(ctx, k)
	b.Change(k, note)
	return over, err
}

// Hasten ends the pauses between tries: what failed may succeed now.
func (b *Book[K, U, S, E]) Hasten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.news)
	b.news = make(chan struct{})
}

func (b *Book[K, U, S, E]) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news
}
