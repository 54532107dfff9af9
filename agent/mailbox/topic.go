package mailbox

import "sync"

// Topic tells all its subscribers that something is another than it was; what, they read where it
// is kept. The zero Topic has no subscribers.
type Topic struct {
	mu          sync.Mutex // guards subscribers
	subscribers []chan struct{}
}

// Subscribe returns a channel that has a value after a Publish; one value may stand for many. A
// subscription lasts as long as the topic.
func (t *Topic) Subscribe() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan struct{}, 1)
	t.subscribers = append(t.subscribers, c)
	return c
}

// Publish wakes every subscriber. It never blocks.
func (t *Topic) Publish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.subscribers {
		Signal(c)
	}
}

// Signal puts a value into a channel of capacity 1 unless there is one already: the reader is going
// to look anyway.
func Signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
