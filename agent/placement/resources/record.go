package resources

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/internal/await"
)

const (
	// maxRetry is the longest delay between two updates of a container that have no effect.
	maxRetry = 5 * time.Minute
	// maxInUse is the longest one while memory is in use that is to be taken: to look costs one read.
	maxInUse = 8 * time.Second
)

// subject identifies a container or, if container is empty, a pod.
type subject struct {
	pod       types.UID
	container string // its id
}

// records holds the records of live subjects from round to round. Run owns them; during an update
// of a container, that update owns the container's record.
type records map[subject]*record

// record holds what is kept about a subject between rounds.
type record struct {
	group   *cgroups.Container // nil: not found yet
	unread  bool               // the last read of its cgroup failed, which was logged
	sent    sent
	unmoved unmoved
	limited cgroups.CPULimit // the quota that the kernel was last found to have as wanted
	given   *v1.Pod          // the spec whose requests and limits it has; nil: not known
	// earlier: it was there when the agent started.
	earlier bool
	// found has what the runtime or the kernel reported at first of a pod that an earlier run resized; nil: given
	// says what it has.
	found *limits
}

// gave takes note that all of a spec was given.
func (r *record) gave(spec *v1.Pod) { r.given, r.found = spec, nil }

// sent is the set that was last sent to the runtime.
type sent struct {
	cpus cpuset.CPUSet
	at   time.Time // zero: none
}

// unmoved describes an update that had no effect.
type unmoved struct {
	to    string
	tries int       // 0: none failed
	retry time.Time // not before
	err   error
}

// restingError repeats the error of a container whose update is not due again yet.
type restingError struct{ error }

// of returns the record of a subject, a new one if there is none.
func (r records) of(s subject) *record {
	if known := r[s]; known != nil {
		return known
	}
	return &record{}
}

// resisted records an update without effect, and delays its repetition.
func (r *record) resisted(to string, err error) error {
	u := &r.unmoved
	if u.to != to {
		u.tries = 0
	}
	last := maxRetry
	if errors.As(err, new(*inUseError)) {
		last = maxInUse
	}
	wait := await.Pauses{First: time.Second, Last: last}.After(u.tries)
	*u = unmoved{to, u.tries + 1, time.Now().Add(wait), err}
	return err
}

// resting returns the error of the last try if the same update is not due yet.
func (r *record) resting(to string, now time.Time) error {
	if u := r.unmoved; u.to == to && now.Before(u.retry) {
		return u.err
	}
	return nil
}
