package eni

import "net/netip"

// Interface is one network interface of the host.
type Interface struct {
	// ID is the PCI address, with the port if that has several: it survives renames and moves
	// between namespaces. Without PCI hardware it is the interface's name.
	ID       string   `json:"id"`
	Link     Link     `json:"link"`
	Hardware Hardware `json:"hardware"`
}

// Link is netlink's description of an interface.
type Link struct {
	Index int `json:"index"`
	// Kind names the software that made it, if any: veth, vlan, dummy.
	Kind string `json:"kind,omitempty"`
	// Permanent is the MAC address that the hardware came with, if any.
	Permanent string `json:"permanent,omitempty"`
	// Parent is the device beneath, on any bus: virtio0, 0000:21:00.0.
	Parent string `json:"parent,omitempty"`
	// Carrier: the other end is there. It is valid only while the interface is up.
	Carrier bool `json:"carrier,omitempty"`
	// Master is the index of its bridge or bond, Lower the index of the interface that a vlan is
	// on; 0: none.
	Master int `json:"master,omitempty"`
	Lower  int `json:"lower,omitempty"`
	// RDMA names the RDMA devices with a port on it. They need not belong to its hardware: rxe
	// works on any interface.
	RDMA []string `json:"rdma,omitempty"`
	// State can be changed by the interface's holder.
	State State `json:"state"`
}

// State is restored when an interface comes back.
type State struct {
	Name string `json:"name"`
	// AltNames are its other names (ip link property), sorted.
	AltNames  []string       `json:"altNames,omitempty"`
	MAC       string         `json:"mac,omitempty"`
	Alias     string         `json:"alias,omitempty"`
	MTU       int            `json:"mtu,omitempty"`
	Queue     int            `json:"queue,omitempty"` // txqueuelen
	Up        bool           `json:"up,omitempty"`
	Promisc   bool           `json:"promisc,omitempty"`
	Multicast bool           `json:"multicast,omitempty"` // IFF_ALLMULTI
	XDP       bool           `json:"xdp,omitempty"`       // a program is attached
	Addresses []netip.Prefix `json:"addresses,omitempty"` // without those of link or host scope
	Settings  Settings       `json:"settings,omitzero"`
}

// Settings are rarely changed. Sizes of 0 are unknown.
type Settings struct {
	Group       int  `json:"group,omitempty"`
	NoMulticast bool `json:"noMulticast,omitempty"` // IFF_MULTICAST is off
	NoARP       bool `json:"noARP,omitempty"`
	GSOSize     int  `json:"gsoSize,omitempty"` // bytes sent as one
	GSOSegs     int  `json:"gsoSegs,omitempty"` // the same in segments
	GROSize     int  `json:"groSize,omitempty"` // bytes received as one
}

// Hardware holds what sysfs says of the device beneath an interface. For interfaces made by
// software it is empty except for RDMA devices, which software can make too.
type Hardware struct {
	// PCI is the function's address, Root its root complex (pci0000:3a); Vendor and Device are its
	// ids without 0x.
	PCI    string `json:"pci,omitempty"`
	Root   string `json:"root,omitempty"`
	Vendor string `json:"vendor,omitempty"`
	Device string `json:"device,omitempty"`
	// Drivers names the kernel's drivers of the PCI function and of the devices between it and the
	// interface, such as virtio-pci and virtio_net.
	Drivers []string `json:"drivers,omitempty"`
	// Node is the NUMA node; nil if the kernel knows none.
	Node *int `json:"node,omitempty"`
	Port int  `json:"port,omitempty"`
	// Speed is in Mb/s, the last that the driver told; 0: unknown.
	Speed int `json:"speed,omitempty"`
	// Physical is the physical function's address if this is a virtual one; Virtual is the number
	// of its own virtual functions.
	Physical string `json:"physical,omitempty"`
	Virtual  int    `json:"virtual,omitempty"`
	// RDMA names the RDMA devices of the function (mlx5_0) and the interface, Nodes their device
	// nodes.
	RDMA  []string `json:"rdma,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// same reports whether a link found in another namespace is this interface. It must not confuse it
// with another one: each namespace has its own indexes and names, so these say nothing. Without
// hardware only the MAC address is left.
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
