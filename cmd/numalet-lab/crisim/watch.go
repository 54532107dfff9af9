package crisim

// StateRemoved is the State of a container that the runtime has removed; only Watch reports it.
const StateRemoved = "REMOVED"

// Watch calls f with each existing container, and then after each change of a container's state or
// resources, in the order of the changes. f is called under the runtime's lock: it must be quick
// and must not call the runtime. A later Watch replaces f; nil ends it.
func (s *Server) Watch(f func(Container)) { s.store.watch(f) }

func (s *store) watch(f func(Container)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = f
	for _, c := range s.inLocked("") {
		s.tellLocked(c)
	}
}

// tellLocked reports a container's new state to the watcher.
func (s *store) tellLocked(c *container) {
	if s.watcher == nil {
		return
	}
	d := c.dumpLocked()
	if s.containers[c.id] == nil {
		d.State = StateRemoved
	}
	s.watcher(d)
}
