package eni

import (
	"context"
	"io"
)

// Kernel is what netlink is needed for. What it says is of the network namespace where interfaces
// are at home.
type Kernel interface {
	// Links are all interfaces but the loopback.
	Links() ([]Link, error)
	// Routes are the indexes of the interfaces that default routes lead over.
	Routes() ([]int, error)
	// RDMA are the names of the RDMA devices that have an interface beneath one of their ports, by
	// the interface's index.
	RDMA() (map[int][]string, error)
	// Watch calls changed once it watches, and whenever something may have changed; it must not
	// block. It returns when ctx is done, or cannot be relied on any more.
	Watch(ctx context.Context, changed func()) error
}

// Mover changes interfaces.
type Mover interface {
	// Fetch moves an interface home that is in another network namespace.
	Fetch(i Interface) error
	// User is a process in the network namespace where an interface is, away from home; 0: there is
	// none, or the interface is at home.
	User(i Interface) (pid int, err error)
	// Apply makes one change of an interface that is at home.
	Apply(index int, s Step) error
}

// Network is the kernel, until it is closed.
type Network interface {
	Kernel
	Mover
	io.Closer
}

// Host is what the plugin knows of its machine.
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
