package probe

import (
	"container/heap"
	"time"
)

// tick is the precision of wake-ups: probes that are due at about the same time share one.
const tick = 20 * time.Millisecond

// schedule holds scheduled probes as a heap, the next one first.
type schedule []*probe

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].at, s[j].at = i, j
}

// Push implements heap.Interface; callers use add.
func (s *schedule) Push(p any) {
	one := p.(*probe)
	one.at = len(*s)
	*s = append(*s, one)
}

// Pop implements heap.Interface; callers use take.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	one := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return one
}

func (s *schedule) add(p *probe) { heap.Push(s, p) }

func (s *schedule) remove(p *probe) { heap.Remove(s, p.at) }

// take removes and returns a probe that is due; nil: none is. then is the time of the next one;
// zero: there is none.
func (s *schedule) take(now time.Time) (p *probe, then time.Time) {
	if len(*s) == 0 {
		return nil, time.Time{}
	}
	if due := (*s)[0].due; due.After(now) {
		// Truncate drops the monotonic time, which the wait needs, since the machine's clock may be set.
		return nil, due.Add(due.Add(tick - 1).Truncate(tick).Sub(due))
	}
	return heap.Pop(s).(*probe), time.Time{}
}
