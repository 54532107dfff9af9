package csi

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/shared"
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
	only    bool // if so, by calls of this run of the agent whose outcome is not known
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
	only  bool // as of a use
}

// entry records what the node has of a volume.
type entry struct {
	shared.Uses[use, state]
	// places has where the volume is staged, by path.
	places map[string]place
	// failed has calls that failed, by the path that they were for.
	failed map[string]failure
	// kept is why the volume could not be unstaged; zero: that did not fail.
	kept failure
	// verified: it was attached when a pod wanted it.
	verified bool
	// unattached: the volume needs no attachment.
	unattached bool
	// trying is the use for which calls are made now; end ends them.
	trying use
	end    context.CancelCauseFunc
}

// Had reports whether the volume is staged.
func (e *entry) Had() bool { return len(e.places) > 0 }

// mayBeAttached reports whether the volume may be attached; true while that is not known.
func (e *entry) mayBeAttached() bool { return !e.unattached }

// failure is a call that failed, and is not repeated before a time.
type failure struct {
	times        int
	since, again time.Time
	err          error
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

// begin notes that calls are made for a use, which leave ends. ok is false if the pod does not want the
// volume any more.
func (b book) begin(ctx context.Context, k Key, u use) (within context.Context, end func(), now state, ok bool) {
	within, cancel := context.WithCancelCause(ctx)
	b.Change(k, func(e *entry) {
		if now, ok = e.Users[u]; !ok || now.leaving {
			ok = false
			return
		}
		e.trying, e.end = u, cancel
	})
	return within, func() {
		b.Change(k, func(e *entry) { e.trying, e.end = use{}, nil })
		cancel(nil)
	}, now, ok
}

// leave notes that a pod gives up a volume, and ends the calls for it: their result is not needed, and
// what they may have done is undone. clean: there is nothing to undo, and no call for the pod runs.
func (b book) leave(k Key, u use) (clean bool) {
	b.Change(k, func(e *entry) {
		now, has := e.Users[u]
		if !has {
			clean = true
			return
		}
		e.Users[u] = state{known: now.known, leaving: true}
		if e.end != nil && e.trying == u {
			e.end(errGone)
		} else {
			clean = !now.known
		}
	})
	return clean
}

// take notes what is there of a volume.
func (b book) take(k Key, of remnant, unattached bool) {
	b.Change(k, func(e *entry) {
		if of.place.path != "" {
			e.places[of.place.path] = of.place
		}
		for _, u := range of.uses {
			now := e.Users[u]
			now.known = true
			e.Users[u] = now
		}
		e.unattached = e.unattached || unattached
	})
}

// forgive forgets the failures of calls to such drivers, which may have been repaired, and ends the
// pauses before their next calls.
func (b book) forgive(registered func(driver string) bool) {
	b.Each(func(k Key, e *entry) {
		if registered(k.Driver) {
			clear(e.failed)
		}
	})
	b.Hasten()
}

// unattach notes that the volumes of a driver need no attachment, and reports whether that is news.
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
