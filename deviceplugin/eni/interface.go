package eni

import "net/netip"

// Interface is one network interface of the host.
type Interface struct {
	// ID is the same across renames, and wherever the interface is: its PCI address, with a port
	// after it if that has several, or its name if it is none of the hardware.
	ID       string   `json:"id"`
	Link     Link     `json:"link"`
	Hardware Hardware `json:"hardware"`
}

// Link is what netlink says of an interface.
type Link struct {
	Index int `json:"index"`
	// Kind is what made it, if software did: veth, vlan, dummy.
	Kind string `json:"kind,omitempty"`
	// Permanent is the MAC address that the hardware came with, if any.
	Permanent string `json:"permanent,omitempty"`
	// Parent is the device beneath, on whatever bus: virtio0, 0000:21:00.0.
	Parent string `json:"parent,omitempty"`
	// Carrier: the other end is there. It says something only while the interface is up.
	Carrier bool `json:"carrier,omitempty"`
	// Master is the bridge or bond that it is part of, Lower the interface on which a vlan is:
	// indexes, 0 for none.
	Master int `json:"master,omitempty"`
	Lower  int `json:"lower,omitempty"`
	// RDMA are the RDMA devices that have it beneath one of their ports. Not all are of its hardware:
	// rxe is of any interface.
	RDMA []string `json:"rdma,omitempty"`
	// State is what whoever has the interface can change.
	State State `json:"state"`
}

// State is what is put right when an interface comes back.
type State struct {
	Name string `json:"name"`
	// AltNames are other names of it (ip link property), sorted.
	AltNames  []string       `json:"altNames,omitempty"`
	MAC       string         `json:"mac,omitempty"`
	Alias     string         `json:"alias,omitempty"`
	MTU       int            `json:"mtu,omitempty"`
	Queue     int            `json:"queue,omitempty"` // txqueuelen
	Up        bool           `json:"up,omitempty"`
	Promisc   bool           `json:"promisc,omitempty"`
	Multicast bool           `json:"multicast,omitempty"` // all of it: IFF_ALLMULTI
	XDP       bool           `json:"xdp,omitempty"`       // a program is attached
	Addresses []netip.Prefix `json:"addresses,omitempty"` // but those of the link's own scope
	Settings  Settings       `json:"settings,omitzero"`
}

// Settings are what few change of an interface. Sizes of 0 are not known.
type Settings struct {
	Group       int  `json:"group,omitempty"`
	NoMulticast bool `json:"noMulticast,omitempty"` // without IFF_MULTICAST
	NoARP       bool `json:"noARP,omitempty"`
	GSOSize     int  `json:"gsoSize,omitempty"` // bytes that are sent as one
	GSOSegs     int  `json:"gsoSegs,omitempty"` // the same in segments
	GROSize     int  `json:"groSize,omitempty"` // bytes that are received as one
}

// Hardware is what sysfs says of what is beneath an interface. Beneath those that software made
// all of it is empty but RDMA devices, which software can make too.
type Hardware struct {
	// PCI is the function's address, Vendor and Device its ids without 0x.
	PCI    string `json:"pci,omitempty"`
	Vendor string `json:"vendor,omitempty"`
	Device string `json:"device,omitempty"`
	// Drivers are those of the function and of what is between it and the interface: virtio-pci
	// and virtio_net.
	Drivers []string `json:"drivers,omitempty"`
	// Node is the NUMA node, nil where the kernel knows none.
	Node *int `json:"node,omitempty"`
	Port int  `json:"port,omitempty"`
	// Physical is the address of the function that this one is a virtual one of, Virtual how many
	// this one has.
	Physical string `json:"physical,omitempty"`
	Virtual  int    `json:"virtual,omitempty"`
	// RDMA are the RDMA devices of the function (mlx5_0) and the interface, Nodes their device nodes.
	RDMA  []string `json:"rdma,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// same reports whether a link that was found elsewhere is this interface. It must not take another
// one for it: each namespace has indexes and names of its own, so that these say nothing. Of what
// has no hardware only the MAC address is left.
func (i Interface) same(l Link) bool {
	switch was := i.Link; {
	case was.Kind != l.Kind || was.Parent != l.Parent:
		return false
	case was.Permanent != "": // tells the ports of one function apart
		return was.Permanent == l.Permanent
	case was.Parent != "":
		return true
	default:
		return was.State.MAC == l.State.MAC
	}
}
