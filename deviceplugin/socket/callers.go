package socket

import "sync"

// Callers counts the calls in flight on a connection. Once it has ended it takes no new calls, and
// stays open until the last call returns: a plugin that registers again does not cut off the call
// that it is answering.
type Callers struct {
	mu    sync.Mutex
	n     int
	ended bool
}

// Enter begins a call; it returns false if the connection has ended.
func (c *Callers) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.n++
	return true
}

// Leave ends a call; if last, the caller closes the connection.
func (c *Callers) Leave() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	return c.ended && c.n == 0
}

// End refuses further calls; if last, no call is in flight and the caller closes the connection.
func (c *Callers) End() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.n == 0
}
