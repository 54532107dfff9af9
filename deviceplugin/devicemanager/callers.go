package devicemanager

import "sync"

// callers counts the calls in flight on a link. A link that has ended takes no new calls. Its
// connection stays open until the last call returns: a plugin that registers again does not cut off
// the Allocate call that it is answering.
type callers struct {
	mu    sync.Mutex
	n     int
	ended bool
}

// enter begins a call; it returns false if the link has ended.
func (c *callers) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.n++
	return true
}

// leave ends a call; if last, the caller closes the connection.
func (c *callers) leave() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	return c.ended && c.n == 0
}

// end refuses further calls; if last, no call is in flight and the caller closes the connection.
func (c *callers) end() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.n == 0
}
