package rig

// queue holds the arrivals that wait for a place.
type queue struct {
	size int
	// shapes holds the arrivals of each shape in order, and the reason why they wait.
	shapes map[int]*waiters
}

type waiters struct {
	arrivals []int
	reason   Reason
}

func newQueue() queue { return queue{shapes: map[int]*waiters{}} }

func (q *queue) add(arrival, shape int, reason Reason) {
	q.size++
	if q.shapes[shape] == nil {
		q.shapes[shape] = &waiters{}
	}
	q.shapes[shape].arrivals = append(q.shapes[shape].arrivals, arrival)
	q.shapes[shape].reason = reason
}

// ahead reports whether pods of the shape wait, and why.
func (q *queue) ahead(shape int) (Reason, bool) {
	l, ok := q.shapes[shape]
	if !ok {
		return Reason{}, false
	}
	return l.reason, true
}

// blame records why the pods of a shape wait now.
func (q *queue) blame(shape int, reason Reason) { q.shapes[shape].reason = reason }

// next returns the arrival that has waited longest, without those of some shapes.
func (q *queue) next(without map[int]bool) (arrival int, ok bool) {
	for shape, l := range q.shapes {
		if !without[shape] && (!ok || l.arrivals[0] < arrival) {
			arrival, ok = l.arrivals[0], true
		}
	}
	return arrival, ok
}

// remove removes the first arrival of a shape and returns why it waited.
func (q *queue) remove(shape int) Reason {
	q.size--
	l := q.shapes[shape]
	l.arrivals = l.arrivals[1:]
	if len(l.arrivals) == 0 {
		delete(q.shapes, shape)
	}
	return l.reason
}
