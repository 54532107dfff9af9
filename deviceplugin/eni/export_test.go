package eni

import (
	"path/filepath"
	"slices"
	"testing"
)

// SimulatedHost is a host as data.
type SimulatedHost = *simulated

// OpenHost makes a simulated host from a file in testdata. It returns paths on it, with sockets in
// root.
func OpenHost(t *testing.T, name, root string) (*simulated, Places) {
	t.Helper()
	host, sys := open(t, name)
	p := places(t, root, sys)
	p.PodResources = filepath.Join(root, "pods.sock")
	return host, p
}

// Carrier changes whether an interface has a carrier.
func (s *simulated) Carrier(name string, is bool) {
	s.change(func() {
		for i, l := range s.links {
			if l.State.Name == name {
				s.links[i].Carrier = is
			}
		}
	})
}

// Take moves an interface into a container, where it gets another name, also in sysfs.
func (s *simulated) Take(t *testing.T, sys, name, there string) {
	t.Helper()
	net := filepath.Join(sys, "class/net")
	device, err := filepath.EvalSymlinks(filepath.Join(net, name, "device"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(net, there, "device"), "-> "+device)
	s.change(func() {
		at := slices.IndexFunc(s.links, func(l Link) bool { return l.State.Name == name })
		l := s.links[at]
		l.State.Name, l.State.MTU = there, 1400
		s.away, s.links = append(s.away, l), slices.Delete(s.links, at, at+1)
	})
}

// End ends the network namespace of a container: the kernel moves its interfaces home as they are.
func (s *simulated) End() {
	s.change(func() { s.links, s.away = append(s.links, s.away...), nil })
}

// Break has changes of interfaces fail; nil: not any more.
func (s *simulated) Break(err error) { s.change(func() { s.broken = err }) }

// Look has the plugin look.
func (s *simulated) Look() { s.change(func() {}) }

// Has returns the state of an interface at home.
func (s *simulated) Has(name string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.State.Name == name {
			return l.State, true
		}
	}
	return State{}, false
}

// ServeAgent serves pod resources. List has device plugins' devices listed, of example.com/sriov.
func ServeAgent(t *testing.T, path string) *agent {
	t.Helper()
	return serveAgent(t, path)
}

// List sets the ids of the devices that plugins list.
func (a *agent) Lists(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed = ids
}
