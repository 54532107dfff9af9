package eni

import (
	"context"
	"io"
)

// Kernel holds the questions to netlink. The answers are about the network namespace where
// interfaces are at home.
type Kernel interface {
	// Links returns all interfaces except the loopback.
	Links() ([]Link, error)
	// Routes returns the indexes of the interfaces of default routes.
	Routes() ([]int, error)
	// RDMA returns, by the index of an interface, the names of the RDMA devices with a port on it.
	RDMA() (map[int][]string, error)
	// Watch calls changed once it watches, and after each possible change; changed must not block.
	// It returns when ctx is done, or with an error if it may miss changes.
	Watch(ctx context.Context, changed func()) error
}

// Mover changes interfaces.
type Mover interface {
	// Fetch moves an interface home from another network namespace.
	Fetch(i Interface) error
	// User returns a process in the network namespace where an interface is, away from home; 0:
	// there is none, or the interface is at home.
	User(i Interface) (pid int, err error)
	// Apply changes an interface that is at home.
	Apply(index int, s Step) error
}

// Network is an open connection to the kernel.
type Network interface {
	Kernel
	Mover
	io.Closer
}

// Host is how the plugin sees its machine.
type Host struct {
	kernel Kernel
	mover  Mover
	sysfs  sysfs
}

// facts looks at everything.
func (h Host) facts() (Facts, error) {
	links, err := h.kernel.Links()
	if err != nil {
		return Facts{}, err
	}
	if h.sysfs.rdma() {
		ports, err := h.kernel.RDMA()
		if err != nil {
			return Facts{}, err
		}
		for at := range links {
			links[at].RDMA = ports[links[at].Index]
		}
	}
	routes, err := h.kernel.Routes()
	return Facts{Interfaces: h.sysfs.identify(links), Routes: routes}, err
}
