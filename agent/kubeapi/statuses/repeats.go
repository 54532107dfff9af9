package statuses

import "time"

// repeated is the least time between two writings of one status that somebody else overwrites
// again and again, such as another node of the same name. The first time it is put right at once.
const repeated = 10 * time.Second

// repeats are how often a version of a status was written although nothing had changed here.
type repeats struct {
	version int
	more    int       // times after the first
	at      time.Time // the last one
}

// wrote takes that the API server has a version, at a time.
func (r *repeats) wrote(version int, now time.Time) {
	if r.at.IsZero() || r.version != version {
		*r = repeats{version: version, at: now}
		return
	}
	r.more++
	r.at = now
}

// due is when the version may be written; zero: at any time.
func (r *repeats) due(version int) time.Time {
	if r.version != version || r.more == 0 {
		return time.Time{}
	}
	return r.at.Add(repeated)
}
