package csi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/volume/shared"
	"github.com/numalet/numalet/internal/files"
)

// use is a pod's use of a volume.
type use struct {
	pod   types.UID
	name  string // the volume's
	block bool
}

// PodUID returns the pod.
func (u use) PodUID() types.UID { return u.pod }

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

// entry records what the node has of a volume.
type entry struct {
	shared.Uses[use, state]
	// places has where the volume is staged, by path.
	places map[string]place
	// failed has calls that failed, by the path that they were for.
	failed map[string]failure
	// verified: it was attached when a pod wanted it.
	verified bool
	// unattached: nobody attaches the volume.
	unattached bool
}

// Had reports whether the volume is staged.
func (e *entry) Had() bool { return len(e.places) > 0 }

// mayBeAttached reports whether it is not known that nobody attaches the volume.
func (e *entry) mayBeAttached() bool { return !e.unattached }

// failure is a call that failed, and is not repeated before a time.
type failure struct {
	times int
	again time.Time
	err   error
}

// book has the volumes of the node. Files are the record; the book is read from them once.
type book struct {
	*shared.Book[Key, use, state, *entry]
}

func newBook(ends shared.Ends[Key]) book {
	return book{shared.New[Key, use, state](ends, func() *entry {
		return &entry{places: map[string]place{}, failed: map[string]failure{}}
	})}
}

// keys returns such volumes, by name.
func (b book) keys(which func(e *entry) bool) (out []Key) {
	b.Each(func(k Key, e *entry) {
		if which(e) {
			out = append(out, k)
		}
	})
	slices.SortFunc(out, cmpKey)
	return out
}

// read reads what earlier runs of the agent, or a kubelet, left. A record that cannot be read is
// reported, and its volume is left alone.
func (b book) read(p paths) (problems error) {
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
	root := files.Pattern(string(p))
	found(filepath.Join(root, podsName, "*", "volumes", escaped, "*", dataFile),
		func(dir string, r record) {
			uid := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir))))
			b.Change(r.key(), func(e *entry) {
				e.Users[use{pod: types.UID(uid), name: filepath.Base(dir)}] = state{known: true}
				e.unattached = r.Life == ephemeralLife
			})
		})
	found(filepath.Join(root, "plugins", pluginName, "*", "*", dataFile),
		func(dir string, r record) {
			path := filepath.Join(dir, globalName)
			b.Change(r.key(), func(e *entry) { e.places[path] = place{path: path, label: r.Label} })
		})
	found(filepath.Join(root, "plugins", pluginName, devices, "*", "data", dataFile),
		func(dir string, r record) {
			name := filepath.Base(filepath.Dir(dir))
			path := p.block(stagingDir, name)
			pods, err := os.ReadDir(p.block(name, "dev"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = errors.Join(problems, err)
			}
			b.Change(r.key(), func(e *entry) {
				e.places[path] = place{path: path, name: name}
				for _, pod := range pods {
					e.Users[use{pod: types.UID(pod.Name()), name: name, block: true}] = state{known: true}
				}
			})
		})
	return problems
}

// forgive forgets the failures of calls to such drivers, which may have been repaired, and ends the
// pauses of those who wait.
func (b book) forgive(registered func(driver string) bool) {
	b.Each(func(k Key, e *entry) {
		if registered(k.Driver) {
			clear(e.failed)
		}
	})
	b.Hasten()
}

// unattach notes that nobody attaches the volumes of a driver, and reports whether that is news.
func (b book) unattach(driver string) (news bool) {
	b.Each(func(k Key, e *entry) {
		if k.Driver == driver && !e.unattached {
			e.unattached, news = true, true
		}
	})
	return news
}

// verify notes that a volume is attached, and reports whether that is news.
func (b book) verify(k Key) (news bool) {
	b.Change(k, func(e *entry) { news, e.verified = !e.verified, true })
	return news
}
