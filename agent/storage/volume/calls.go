package volume

import (
	"context"
	"fmt"
	"sync"
)

// calls runs functions that may hang in a file system, and then cannot be ended. Each call has a
// goroutine of its own, which may outlive the agent's Run. Only one call of a name runs at a time, so
// retries do not add more. The zero value is ready.
type calls struct {
	mu      sync.Mutex
	running map[string]*call
}

type call struct {
	done chan struct{}
	err  error
}

// do calls f and waits for it until ctx ends. If an earlier call of that name still runs, do waits
// for that one instead and returns its error.
func (c *calls) do(ctx context.Context, name string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	running := c.begin(name, f)
	select {
	case <-running.done:
		return running.err
	case <-ctx.Done():
		select {
		case <-running.done:
			return running.err
		default:
			return fmt.Errorf("%s has not come back yet: %w", name, ctx.Err())
		}
	}
}

// runs reports whether a call of that name runs.
func (c *calls) runs(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[name] != nil
}

func (c *calls) begin(name string, f func() error) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, is := c.running[name]; is {
		return earlier
	}
	if c.running == nil {
		c.running = map[string]*call{}
	}
	now := &call{done: make(chan struct{})}
	c.running[name] = now
	go func() {
		err := f()
		c.mu.Lock()
		defer c.mu.Unlock()
		now.err = err
		delete(c.running, name)
		close(now.done)
	}()
	return now
}
