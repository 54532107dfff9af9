package gc

import (
	"cmp"
	"slices"
	"time"
)

// Image is one that the runtime has.
type Image struct {
	ID string
	// Names are its tags and digests.
	Names  []string
	Size   uint64 // bytes
	Pinned bool   // by the runtime, which needs it itself
}

// ImagePolicy says when images are removed that nothing uses.
type ImagePolicy struct {
	// When High percent of the disk are used, so many images go that Low are. High 100: none for
	// that.
	High, Low int
	// Those that were found less than MinAge ago stay in any case. Those that nothing has used for
	// MaxAge go in any case; 0: none for that.
	MinAge, MaxAge time.Duration
}

// off reports whether no image is ever removed.
func (p ImagePolicy) off() bool { return p.High >= 100 && p.MaxAge == 0 }

// Disk is the room on the filesystem of images, in bytes.
type Disk struct{ Capacity, Available uint64 }

// used is how much of the disk is used, in percent.
func (d Disk) used() int { return 100 - int(d.Available*100/d.Capacity) }

// usage is what is remembered of an image.
type usage struct {
	found time.Time // when it was seen first
	used  time.Time // when something was seen to use it last; zero: never
}

// idle is since when nothing has used it, as far as is known.
func (u usage) idle() time.Time {
	if u.used.After(u.found) {
		return u.used
	}
	return u.found
}

// candidate is an image that may be removed: nothing uses it now.
type candidate struct {
	Image
	usage
}

// removals is what to remove.
type removals struct {
	old []candidate // whatever room there is
	// spare go one after the other, until free bytes are.
	spare []candidate
	free  uint64
}

// decide says which images go. Those that were used longest ago go first, those found first among
// those that never were.
func decide(all []candidate, disk Disk, p ImagePolicy, now time.Time) (r removals) {
	if p.High < 100 && disk.used() >= p.High {
		want := disk.Capacity * uint64(100-p.Low) / 100
		r.free = max(want, disk.Available) - disk.Available
	}
	for _, c := range all {
		if c.Pinned || now.Sub(c.found) < p.MinAge {
			continue
		}
		if p.MaxAge > 0 && now.Sub(c.idle()) > p.MaxAge {
			r.old = append(r.old, c)
		} else {
			r.spare = append(r.spare, c)
		}
	}
	order := func(a, b candidate) int {
		return cmp.Or(a.used.Compare(b.used), a.found.Compare(b.found), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(r.old, order)
	slices.SortFunc(r.spare, order)
	return r
}
