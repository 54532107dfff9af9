package gc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
)

// Image is an image of the runtime.
type Image struct {
	ID string
	// Names are its tags and digests.
	Names []string
	// Handler is the runtime handler that the image is of; "": the runtime does not tell, or it is not asked.
	Handler string
	Size    uint64 // bytes
	Pinned  bool   // the runtime itself needs it
}

// key tells the image from others.
func (i Image) key() string { return cri.ImageOf(i.ID, i.Handler) }

// usedBy reports whether the image is in use, by its id or a name, of its handler if it has one.
func (i Image) usedBy(inUse sets.Set[string]) bool {
	return inUse.Has(i.key()) ||
		slices.ContainsFunc(i.Names, func(name string) bool {
			return inUse.HasAny(cri.ImageOf(name, i.Handler), cri.ImageOf(name, anyHandler))
		})
}

// anyHandler stands for the handlers of pods whose containers do not exist yet.
const anyHandler = "*"

// ImagePolicy says when unused images are removed.
type ImagePolicy struct {
	// High and Low are percentages of the disk. When High is in use, images are removed until Low is.
	// High 100 disables this.
	High, Low int
	// Images found less than MinAge ago always stay. Images unused for MaxAge are always removed; 0
	// disables this.
	MinAge, MaxAge time.Duration
}

// off reports whether images are never removed.
func (p ImagePolicy) off() bool { return p.High >= 100 && p.MaxAge == 0 }

// Disk is the room on the filesystem of images, in bytes.
type Disk struct{ Capacity, Available uint64 }

// used returns the used part of the disk in percent.
func (d Disk) used() int { return 100 - int(d.Available*100/d.Capacity) }

// usage holds what is known about the use of an image.
type usage struct {
	found time.Time // when it was first seen
	used  time.Time // when it was last seen in use; zero: never
}

// idle returns when the image was last seen in use, or first seen if it never was in use.
func (u usage) idle() time.Time {
	if u.used.After(u.found) {
		return u.used
	}
	return u.found
}

// candidate is an image that may be removed: nothing uses it.
type candidate struct {
	Image
	usage
}

// removals lists what to remove.
type removals struct {
	old []candidate // whatever the room
	// spare are removed one after the other until free bytes are free.
	spare []candidate
	free  uint64
}

// decide selects the images to remove. The least recently used go first; of those never used, the
// first found.
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
