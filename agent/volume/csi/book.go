package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// use is a pod's use of a volume.
type use struct {
	pod   types.UID
	name  string // the volume's
	block bool
}

// state says how far a use is.
type state struct {
	known   bool // the driver may have published the volume
	done    bool // it has, in this run of the agent
	leaving bool // the pod gives it up
	// since is when the pod began to want it, in this run of the agent.
	since time.Time
}

// place is where a volume is staged; the driver may have begun to.
type place struct {
	path string
	name string // of a block volume; "": it has a file system
	// label is the SELinux label that it is mounted with; "": none.
	label string
	done  bool // the driver has answered, in this run of the agent
}

// shared is what the node has of a volume.
type shared struct {
	users map[use]state
	// places has where the volume is staged, by path.
	places map[string]place
	// failed has calls that failed, by the path that they were for.
	failed map[string]failure
	// turn is held by who calls the driver for the volume, and callers counts those who have it or
	// wait for it.
	turn    chan struct{}
	callers int
	// verified: it was attached when a pod wanted it.
	verified bool
	// unattached: nobody attaches the volume.
	unattached bool
	// ending: a goroutine has the volume unstaged.
	ending bool
}

// failure is a call that failed, and is not repeated before a time.
type failure struct {
	times int
	again time.Time
	err   error
}

// book has the volumes of the node. Files are the record; the book is read from them once.
type book struct {
	mu      sync.Mutex // guards the fields below
	volumes map[Key]*shared
	news    chan struct{} // closed and replaced when drivers have changed
}

func newBook() *book {
	return &book{volumes: map[Key]*shared{}, news: make(chan struct{})}
}

func (b *book) of(k Key) *shared {
	s := b.volumes[k]
	if s == nil {
		s = &shared{users: map[use]state{}, places: map[string]place{},
			failed: map[string]failure{}, turn: make(chan struct{}, 1)}
		b.volumes[k] = s
	}
	return s
}

// change changes what is known of a volume, and forgets a volume of which nothing is left.
func (b *book) change(k Key, do func(s *shared)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(k)
	do(s)
	b.sweepLocked(k, s)
}

func (b *book) sweepLocked(k Key, s *shared) {
	if len(s.users)+len(s.places)+s.callers == 0 {
		delete(b.volumes, k)
	}
}

// take waits until nobody else calls the driver for the volume.
func (b *book) take(ctx context.Context, k Key) (done func(), err error) {
	s := b.call(k)
	select {
	case s.turn <- struct{}{}:
		return func() {
			<-s.turn
			b.called(k, s)
		}, nil
	case <-ctx.Done():
		b.called(k, s)
		return nil, fmt.Errorf("volume %s is busy: %w", k.Name(), ctx.Err())
	}
}

func (b *book) call(k Key) *shared {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(k)
	s.callers++
	return s
}

func (b *book) called(k Key, s *shared) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.callers--
	b.sweepLocked(k, s)
}

// at returns the volume that a use is of.
func (b *book) at(u use) (k Key, has bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.volumes {
		if _, has := s.users[u]; has {
			return k, true
		}
	}
	return k, false
}

// uses returns the uses of a pod.
func (b *book) uses(pod types.UID) (out []use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.volumes {
		for u := range s.users {
			if u.pod == pod {
				out = append(out, u)
			}
		}
	}
	slices.SortFunc(out, cmpUse)
	return out
}

// keys returns the volumes of which the node has something, by name.
func (b *book) keys(which func(s *shared) bool) []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Key
	for k, s := range b.volumes {
		if which(s) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, cmpKey)
	return out
}

// read reads what earlier runs of the agent, or a kubelet, left. A record that cannot be read is
// reported, and its volume is left alone.
func (b *book) read(p paths) (problems error) {
	found := func(pattern string, take func(dir string, r record)) {
		all, err := filepath.Glob(pattern) // the pattern is sound
		problems = errors.Join(problems, err)
		for _, path := range all {
			dir := filepath.Dir(path)
			r, err := readRecord(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			problems = errors.Join(problems, err)
			if err == nil {
				take(dir, r)
			}
		}
	}
	root := escapeGlob(string(p))
	found(filepath.Join(root, podsName, "*", "volumes", escaped, "*", dataFile),
		func(dir string, r record) {
			uid := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir))))
			s := b.of(r.key())
			s.users[use{pod: types.UID(uid), name: filepath.Base(dir)}] = state{known: true}
			s.unattached = r.Life == ephemeralLife
		})
	found(filepath.Join(root, "plugins", pluginName, "*", "*", dataFile),
		func(dir string, r record) {
			path := filepath.Join(dir, globalName)
			b.of(r.key()).places[path] = place{path: path, label: r.Label}
		})
	found(filepath.Join(root, "plugins", pluginName, devices, "*", "data", dataFile),
		func(dir string, r record) {
			name := filepath.Base(filepath.Dir(dir))
			s, path := b.of(r.key()), p.block(stagingDir, name)
			s.places[path] = place{path: path, name: name}
			pods, err := os.ReadDir(p.block(name, "dev"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = errors.Join(problems, err)
			}
			for _, pod := range pods {
				s.users[use{pod: types.UID(pod.Name()), name: name, block: true}] = state{known: true}
			}
		})
	return problems
}

// forgive forgets the failures of calls to such drivers, which may have been repaired, and ends the
// pauses of those who wait.
func (b *book) forgive(registered func(driver string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.volumes {
		if registered(k.Driver) {
			clear(s.failed)
		}
	}
	close(b.news)
	b.news = make(chan struct{})
}

// unattach notes that nobody attaches the volumes of a driver, and reports whether that is news.
func (b *book) unattach(driver string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.volumes {
		if k.Driver == driver && !s.unattached {
			s.unattached, news = true, true
		}
	}
	return news
}

// changed is closed when drivers change.
func (b *book) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news
}

// waiting returns the pods that want such a volume and do not have it yet.
func (b *book) waiting(which func(k Key) bool) []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := map[types.UID]bool{}
	for k, s := range b.volumes {
		for u, is := range s.users {
			if !is.done && !is.leaving && which(k) {
				pods[u.pod] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(pods))
}

// wake calls do for each pod that wants such a volume and does not have it yet.
func (b *book) wake(do func(types.UID), which func(k Key) bool) {
	for _, pod := range b.waiting(which) {
		do(pod)
	}
}

// since returns when a pod began to want a volume.
func (b *book) since(k Key, u use) (at time.Time) {
	b.change(k, func(s *shared) { at = s.users[u].since })
	return at
}

// isWanted reports whether a use is not being given up.
func (b *book) isWanted(k Key, u use) (is bool) {
	b.change(k, func(s *shared) {
		now, has := s.users[u]
		is = has && !now.leaving
	})
	return is
}

// verify notes that a volume is attached, and reports whether that is news.
func (b *book) verify(k Key) (news bool) {
	b.change(k, func(s *shared) { news, s.verified = !s.verified, true })
	return news
}
