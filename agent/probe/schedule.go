package probe

import (
	"container/heap"
	"time"
)

// tick is what the times at which probes are due are rounded up to: those that are due about
// together need one wake-up.
const tick = 20 * time.Millisecond

// schedule has the probes that are due at some time, the next one first.
type schedule []*probe

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].at, s[j].at = i, j
}

// Push is heap's; others call add.
func (s *schedule) Push(p any) {
	one := p.(*probe)
	one.at = len(*s)
	*s = append(*s, one)
}

// Pop is heap's; others call take.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	one := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return one
}

func (s *schedule) add(p *probe) { heap.Push(s, p) }

func (s *schedule) remove(p *probe) { heap.Remove(s, p.at) }

// take is the next probe that is due; nil: none is, and the next one will be at a time, if there is
// one.
func (s *schedule) take(now time.Time) (p *probe, then time.Time) {
	if len(*s) == 0 {
		return nil, time.Time{}
	}
	if due := (*s)[0].due; due.After(now) {
		// Truncate drops the monotonic clock's reading, by which it is waited: the machine's may be set.
		return nil, due.Add(due.Add(tick - 1).Truncate(tick).Sub(due))
	}
	return heap.Pop(s).(*probe), time.Time{}
}
