package mailbox

import (
	"sync"

	"github.com/numalet/numalet/internal/await"
)

// Topic tells all its subscribers that something is another than it was; what, they read where it
// is kept. The zero Topic has no subscribers.
type Topic struct {
	mu          sync.Mutex // guards subscribers
	subscribers []chan<- struct{}
}

// Source is a Topic for subscribers, which do not publish.
type Source interface{ join(chan<- struct{}) }

// Subscribe returns a channel that has a value after a Publish of any of the sources; one value may
// stand for many. A subscription lasts as long as its source.
func Subscribe(sources ...Source) <-chan struct{} {
	c := make(chan struct{}, 1)
	for _, s := range sources {
		s.join(c)
	}
	return c
}

func (t *Topic) join(c chan<- struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers = append(t.subscribers, c)
}

// Publish wakes every subscriber. It never blocks.
func (t *Topic) Publish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.subscribers {
		await.Wake(c)
	}
}
