package statuses

import "time"

// repeated is the least time between two writes of a status that another client, such as another
// node of the same name, keeps overwriting. The first write after that is immediate.
const repeated = 10 * time.Second

// repeats counts how often a version of a status was written without a change here.
type repeats struct {
	version int
	more    int       // writes after the first
	at      time.Time // of the last write
}

// wrote records that the API server has a version.
func (r *repeats) wrote(version int, now time.Time) {
	if r.at.IsZero() || r.version != version {
		*r = repeats{version: version, at: now}
		return
	}
	r.more++
	r.at = now
}

// due returns when the version may be written; zero: at any time.
func (r *repeats) due(version int) time.Time {
	if r.version != version || r.more == 0 {
		return time.Time{}
	}
	return r.at.Add(repeated)
}
