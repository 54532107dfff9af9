package sim

// StateRemoved is a container's State, in Watch only, when the runtime forgets it.
const StateRemoved = "REMOVED"

// Watch has f told each container after each change of its state or its resources, in the order
// in which the changes happen; those that are there already come first. f is called under the
// runtime's lock: it must be quick and must not call the runtime. A later Watch replaces f; nil
// ends it.
func (s *Server) Watch(f func(Container)) { s.store.watch(f) }

func (s *store) watch(f func(Container)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = f
	for _, c := range s.inLocked("") {
		s.tellLocked(c)
	}
}

// tellLocked tells the watcher what has just become of a container.
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
