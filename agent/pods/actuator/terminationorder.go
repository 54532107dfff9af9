package actuator

import (
	"context"
	"time"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/internal/await"
)

// terminationOrder has containers stopped one after the other.
type terminationOrder struct {
	// before holds the containers of the previous group by id.
	before map[string][]string
	// ends holds channels by id, each closed when the container has ended.
	ends map[string]chan struct{}
}

func newTerminationOrder(stop podworker.Action) terminationOrder {
	t := terminationOrder{before: map[string][]string{}, ends: map[string]chan struct{}{}}
	for i, group := range stop.StopOrder {
		for _, id := range group {
			t.ends[id] = make(chan struct{})
			if i > 0 {
				t.before[id] = stop.StopOrder[i-1]
			}
		}
	}
	return t
}

// await waits until the previous group has ended, at most until end: then a container that could not be
// stopped holds up no other.
func (t terminationOrder) await(ctx context.Context, id string, end time.Time) {
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for _, before := range t.before[id] {
		if !await.On(within, t.ends[before]) {
			return
		}
	}
}

// ended records that the container has ended. It is called at most once for each.
func (t terminationOrder) ended(id string) {
	if ended, ok := t.ends[id]; ok {
		close(ended)
	}
}
