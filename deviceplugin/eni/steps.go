package eni

import (
	"fmt"
	"net/netip"
	"slices"
)

// Op is a kind of change of an interface.
type Op string

const (
	SetDown        Op = "set down"
	SetUp          Op = "set up"
	LeaveMaster    Op = "leave its bridge or bond"
	SetName        Op = "name"
	RemoveAltName  Op = "remove altname"
	AddAltName     Op = "add altname"
	SetAlias       Op = "set alias"
	SetMAC         Op = "set MAC address"
	SetMTU         Op = "set MTU"
	SetQueue       Op = "set queue length"
	SetGroup       Op = "set group"
	SetGSOSize     Op = "set GSO size"
	SetGSOSegs     Op = "set GSO segments"
	SetGROSize     Op = "set GRO size"
	LeavePromisc   Op = "leave promiscuous mode"
	LeaveMulticast Op = "leave all-multicast mode"
	MulticastOn    Op = "turn multicast on"
	MulticastOff   Op = "turn multicast off"
	ARPOn          Op = "turn ARP on"
	ARPOff         Op = "turn ARP off"
	DetachXDP      Op = "detach the XDP program"
	RemoveAddress  Op = "remove address"
	AddAddress     Op = "add address"
)

// Step is one change, with the new value.
type Step struct {
	Op      Op
	Text    string
	Number  int
	Address netip.Prefix
}

func (s Step) String() string {
	switch s.Op {
	case SetName, RemoveAltName, AddAltName, SetAlias, SetMAC:
		return fmt.Sprintf("%s %q", s.Op, s.Text)
	case SetMTU, SetQueue, SetGroup, SetGSOSize, SetGSOSegs, SetGROSize:
		return fmt.Sprintf("%s %d", s.Op, s.Number)
	case RemoveAddress, AddAddress:
		return fmt.Sprintf("%s %s", s.Op, s.Address)
	}
	return string(s.Op)
}

// steps returns the changes that restore an interface at home. It leaves out names that other
// interfaces have taken.
func steps(was State, now Link, taken func(name string) bool) []Step {
	is := now.State
	rename := was.Name != is.Name && !taken(was.Name)
	restart := rename || was.MAC != is.MAC || now.Master != 0 || is.XDP && !was.XDP ||
		was.Up != is.Up || was.MTU != is.MTU
	var p plan
	// Names and MAC addresses can only change while an interface is down, which also drops what
	// other programs learned of it.
	p.add(is.Up && restart, Step{Op: SetDown})
	down := !is.Up || len(p) > 0
	p.add(now.Master != 0, Step{Op: LeaveMaster})
	for _, name := range is.AltNames { // its own name may be one of them
		p.add(!slices.Contains(was.AltNames, name), Step{Op: RemoveAltName, Text: name})
	}
	p.add(rename, Step{Op: SetName, Text: was.Name})
	for _, name := range was.AltNames {
		p.add(!slices.Contains(is.AltNames, name) && !taken(name), Step{Op: AddAltName, Text: name})
	}
	p.values(was, is)
	for _, a := range is.Addresses {
		p.add(!slices.Contains(was.Addresses, a), Step{Op: RemoveAddress, Address: a})
	}
	p.add(was.Up && down, Step{Op: SetUp})
	for _, a := range was.Addresses { // last, since setting an interface down loses some
		lost := down && a.Addr().Is6()
		p.add(lost || !slices.Contains(is.Addresses, a), Step{Op: AddAddress, Address: a})
	}
	return p
}

// plan collects steps in order.
type plan []Step

func (p *plan) add(wanted bool, s Step) {
	if wanted {
		*p = append(*p, s)
	}
}

// values adds the steps for single values.
func (p *plan) values(was, is State) {
	p.add(is.XDP && !was.XDP, Step{Op: DetachXDP})
	p.add(was.Alias != is.Alias, Step{Op: SetAlias, Text: was.Alias})
	p.add(was.MAC != is.MAC, Step{Op: SetMAC, Text: was.MAC})
	p.add(was.MTU != is.MTU && was.MTU != 0, Step{Op: SetMTU, Number: was.MTU})
	p.add(was.Queue != is.Queue, Step{Op: SetQueue, Number: was.Queue})
	p.add(is.Promisc && !was.Promisc, Step{Op: LeavePromisc})
	p.add(is.Multicast && !was.Multicast, Step{Op: LeaveMulticast})
	p.settings(was.Settings, is.Settings)
}

func (p *plan) settings(was, is Settings) {
	p.add(was.Group != is.Group, Step{Op: SetGroup, Number: was.Group})
	for _, n := range []struct {
		op      Op
		was, is int
	}{
		{SetGSOSize, was.GSOSize, is.GSOSize}, {SetGSOSegs, was.GSOSegs, is.GSOSegs},
		{SetGROSize, was.GROSize, is.GROSize},
	} {
		p.add(n.was != n.is && n.was != 0, Step{Op: n.op, Number: n.was})
	}
	p.add(is.NoMulticast && !was.NoMulticast, Step{Op: MulticastOn})
	p.add(!is.NoMulticast && was.NoMulticast, Step{Op: MulticastOff})
	p.add(is.NoARP && !was.NoARP, Step{Op: ARPOn})
	p.add(!is.NoARP && was.NoARP, Step{Op: ARPOff})
}
