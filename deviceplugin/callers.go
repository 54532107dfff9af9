package deviceplugin

import "sync"

// callers counts the calls that are under way on a link. A link that has ended takes no new ones,
// and its connection stays until the last one has its answer: a plugin that registers again does
// not cut off the Allocate call that it is just answering.
type callers struct {
	mu    sync.Mutex
	n     int
	ended bool
}

// enter begins a call; false when the link has ended.
func (c *callers) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.n++
	return true
}

// leave ends a call; last tells that the connection is now for the caller to close.
func (c *callers) leave() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	return c.ended && c.n == 0
}

// end lets no more calls in; last tells that none is under way.
func (c *callers) end() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.n == 0
}
