package csi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/internal/oneline"
)

// longCall is how long a call may take before it is worth a word.
const longCall = 10 * time.Second

// Awaited returns the oldest call about a volume that its driver has not answered.
func (m *Mounts) Awaited(k Key) (Awaited, bool) {
	if d := m.cfg.Drivers.registered(k.Driver); d != nil {
		return d.awaits(k.Handle)
	}
	return Awaited{}, false
}

// Stuck says of each volume that a pod waits for, or gives up, why that takes long, and what can be done;
// pod "": of volumes that no pod has and that are not unstaged.
func (m *Mounts) Stuck(pod types.UID) (out []string) {
	l := look{m, time.Now()}
	m.book.Each(func(k Key, e *entry) {
		if pod == "" && len(e.Users) == 0 {
			out = append(out, l.unstaging(k, e))
		}
		for u, is := range e.Users {
			if u.pod == pod {
				out = append(out, l.using(k, e, u, is))
			}
		}
	})
	out = slices.DeleteFunc(out, func(text string) bool { return text == "" })
	slices.Sort(out)
	return out
}

// look is one look at what takes long.
type look struct {
	at  *Mounts
	now time.Time
}

// mute says that a driver has not answered a call for long; "": it has.
func (l look) mute(k Key) string {
	call, has := l.at.Awaited(k)
	if !has || l.now.Sub(call.Since) < longCall {
		return ""
	}
	return fmt.Sprintf("the driver has not answered %s since %s ago; look at its log", call.Method,
		duration.HumanDuration(l.now.Sub(call.Since)))
}

// unstaging says why a volume that no pod has is still staged; "": that is not known.
func (l look) unstaging(k Key, e *entry) string {
	text := fmt.Sprintf("volume %s of driver %s ", k.Handle, k.Driver)
	if mute := l.mute(k); mute != "" {
		return text + "is not unstaged: " + mute
	}
	if e.kept.times == 0 {
		return ""
	}
	path := slices.Min(slices.Collect(maps.Keys(e.places)))
	return text + "cannot be unstaged from " + path + " " + e.kept.words(k.Driver, path, l.now)
}

// using says why a pod waits for a volume, or still has it; "": that does not take long.
func (l look) using(k Key, e *entry, u use, is state) string {
	text := fmt.Sprintf("volume %s of driver %s, handle %s", u.name, k.Driver, k.Handle)
	target := l.at.paths.target(u)
	failed := e.failed[leftPrefix+target]
	if is.leaving && is.known && failed.times > 0 {
		return text + ", cannot be unpublished " + failed.words(k.Driver, target, l.now)
	}
	mute := l.mute(k)
	switch {
	case mute == "" || is.leaving && !is.known:
		return ""
	case is.leaving:
		return text + ", is not unpublished: " + mute
	}
	return text + ": " + mute
}

// words say since when a call fails and why, and what can be done about the path that it is for.
func (f failure) words(driver, path string, now time.Time) string {
	text := fmt.Sprintf("since %s ago, %d times, at last: %s", duration.HumanDuration(now.Sub(f.since)),
		f.times, oneline.Of(f.err.Error()))
	if errors.Is(f.err, ErrNotRegistered) {
		return text + "; it is tried again when the driver " + driver + " registers: start it"
	}
	if wait := f.again.Sub(now); wait > 0 {
		text += fmt.Sprintf("; it is tried again in %s", duration.HumanDuration(wait))
	}
	return text + fmt.Sprintf(". If the driver can never do it, do it in its place, and the next try sees "+
		"that: umount %[1]s; rmdir %[1]s", path)
}
