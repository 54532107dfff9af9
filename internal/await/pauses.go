package await

import "time"

// Pauses double from First up to Last.
type Pauses struct{ First, Last time.Duration }

// After returns the pause after n others.
func (p Pauses) After(n int) time.Duration {
	if p.First <= p.Last>>n {
		return p.First << n
	}
	return p.Last
}

// Next returns the pause after one that took so long; zero: the first.
func (p Pauses) Next(pause time.Duration) time.Duration {
	return min(max(2*pause, p.First), p.Last)
}
