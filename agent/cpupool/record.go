package cpupool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
)

// maxRetry is the longest time between two tries to give a container a set that it does not take.
const maxRetry = 5 * time.Minute

// subject is a container, or a pod: then container is empty.
type subject struct {
	pod       types.UID
	container string // its id
}

// records are kept from round to round for what lives. They are Run's; an update of a container has
// that one's for as long as it takes.
type records map[subject]*record

// record is what is remembered of a subject.
type record struct {
	group   *cgroups.Container // nil: not found yet
	unread  bool               // its cgroup could not be read the last time, which was said
	told    told
	unmoved unmoved
	limited cgroups.CPULimit // was found as it should be
}

// told is the set that the runtime was told last.
type told struct {
	cpus cpuset.CPUSet
	at   time.Time // zero: it was told none
}

// unmoved is about what the subject did not take.
type unmoved struct {
	to    string
	tries int       // 0: it took all
	retry time.Time // not before
	err   error
}

// restingError says of containers that did not take their sets what was said before.
type restingError struct{ error }

// of is the record of a subject, a new one if there is none.
func (r records) of(s subject) *record {
	if known := r[s]; known != nil {
		return known
	}
	return &record{}
}

// resisted has the subject rest for a while before it is given that again.
func (r *record) resisted(to string, err error) error {
	u := &r.unmoved
	if u.to != to {
		u.tries = 0
	}
	wait := min(time.Second<<min(u.tries, 10), maxRetry)
	*u = unmoved{to, u.tries + 1, time.Now().Add(wait), err}
	return err
}

// resting is why the subject is not given that again yet.
func (r *record) resting(to string, now time.Time) error {
	if u := r.unmoved; u.to == to && now.Before(u.retry) {
		return u.err
	}
	return nil
}
