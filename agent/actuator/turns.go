package actuator

import (
	"context"
	"time"

	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/internal/await"
)

// turns are those of containers that are stopped one after the other.
type turns struct {
	// before has, by id, the containers of the turn before.
	before map[string][]string
	// ends has, by id, what is closed when the container has ended.
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

// await returns when it is the container's turn, or no time is left to wait for it. By then a
// container that could not be stopped holds up no other.
func (t turns) await(ctx context.Context, id string, end time.Time) {
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for _, before := range t.before[id] {
		if !await.On(within, t.ends[before]) {
			return
		}
	}
}

// ended says, once, that the container has.
func (t turns) ended(id string) {
	if ended, ok := t.ends[id]; ok {
		close(ended)
	}
}
