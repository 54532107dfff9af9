package actuator

import (
	"context"
	"time"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/internal/await"
)

// turns orders containers that are stopped one after the other.
type turns struct {
	// before holds the containers of the previous turn by id.
	before map[string][]string
	// ends holds channels by id, each closed when the container has ended.
	ends map[string]chan struct{}
}

func newTurns(stop podworker.Action) turns {
	t := turns{before: map[string][]string{}, ends: map[string]chan struct{}{}}
	for i, turn := range stop.Turns {
		for _, id := range turn {
			t.ends[id] = make(chan struct{})
			if i > 0 {
				t.before[id] = stop.Turns[i-1]
			}
		}
	}
	return t
}

// await waits for the container's turn, at most until end: then a container that could not be
// stopped holds up no other.
func (t turns) await(ctx context.Context, id string, end time.Time) {
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for _, before := range t.before[id] {
		if !await.On(within, t.ends[before]) {
			return
		}
	}
}

// ended records that the container has ended. It is called at most once for each.
func (t turns) ended(id string) {
	if ended, ok := t.ends[id]; ok {
		close(ended)
	}
}
