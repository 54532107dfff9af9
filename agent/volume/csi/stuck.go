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

// Stuck says of each volume that a pod gives up why it still has it, and what can be done; pod "": of
// volumes that no pod has and that cannot be unstaged.
func (m *Mounts) Stuck(pod types.UID) (out []string) {
	type leaving struct {
		use
		Key
		since  time.Time
		failed failure
	}
	var all []leaving
	now := time.Now()
	m.book.Each(func(k Key, e *entry) {
		if pod == "" && e.kept.times > 0 && len(e.Users) == 0 {
			path := slices.Min(slices.Collect(maps.Keys(e.places)))
			out = append(out, fmt.Sprintf("volume %s of driver %s cannot be unstaged from %s %s", k.Handle,
				k.Driver, path, e.kept.words(k.Driver, path, now)))
		}
		for u, is := range e.Users {
			if u.pod == pod && is.leaving && is.known {
				all = append(all, leaving{u, k, is.since, e.failed[leftPrefix+m.paths.target(u)]})
			}
		}
	})
	slices.SortFunc(all, func(a, b leaving) int { return cmpUse(a.use, b.use) })
	for _, one := range all {
		target := m.paths.target(one.use)
		text := fmt.Sprintf("volume %s of driver %s, handle %s, ", one.name, one.Driver, one.Handle)
		switch {
		case one.failed.times > 0:
			out = append(out, text+"cannot be unpublished "+one.failed.words(one.Driver, target, now))
		case now.Sub(one.since) > longCall:
			out = append(out, fmt.Sprintf("%sis being unpublished since %s ago: the driver has not answered",
				text, duration.HumanDuration(now.Sub(one.since))))
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
