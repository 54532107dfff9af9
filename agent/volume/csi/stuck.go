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

// mute says that a driver has not answered a call for long; "": it has.
func (m *Mounts) mute(k Key, now time.Time) string {
	call, has := m.Awaited(k)
	if !has || now.Sub(call.Since) < longCall {
		return ""
	}
	return fmt.Sprintf("the driver has not answered %s since %s ago; look at its log", call.Method,
		duration.HumanDuration(now.Sub(call.Since)))
}

// Stuck says of each volume that a pod waits for, or gives up, why that takes long, and what can be done;
// pod "": of volumes that no pod has and that are not unstaged.
func (m *Mounts) Stuck(pod types.UID) (out []string) {
	type leaving struct {
		use
		Key
		failed failure
	}
	var all []leaving
	now := time.Now()
	m.book.Each(func(k Key, e *entry) {
		mute := m.mute(k, now)
		if pod == "" && mute != "" && len(e.Users) == 0 {
			out = append(out, fmt.Sprintf("volume %s of driver %s is not unstaged: %s", k.Handle, k.Driver, mute))
		} else if pod == "" && e.kept.times > 0 && len(e.Users) == 0 {
			path := slices.Min(slices.Collect(maps.Keys(e.places)))
			out = append(out, fmt.Sprintf("volume %s of driver %s cannot be unstaged from %s %s", k.Handle,
				k.Driver, path, e.kept.words(k.Driver, path, now)))
		}
		for u, is := range e.Users {
			switch {
			case u.pod != pod:
			case !is.leaving && mute != "":
				out = append(out, fmt.Sprintf("volume %s of driver %s, handle %s: %s", u.name, k.Driver,
					k.Handle, mute))
			case is.leaving && is.known:
				all = append(all, leaving{u, k, e.failed[leftPrefix+m.paths.target(u)]})
			}
		}
	})
	slices.SortFunc(all, func(a, b leaving) int { return cmpUse(a.use, b.use) })
	for _, one := range all {
		target := m.paths.target(one.use)
		text := fmt.Sprintf("volume %s of driver %s, handle %s, ", one.name, one.Driver, one.Handle)
		mute := m.mute(one.Key, now)
		switch {
		case one.failed.times > 0:
			out = append(out, text+"cannot be unpublished "+one.failed.words(one.Driver, target, now))
		case mute != "":
			out = append(out, text+"is not unpublished: "+mute)
		}
	}
	slices.Sort(out)
	return out
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
