package eni

import (
	"fmt"
	"net/netip"
	"slices"
)

// Op is one change of an interface.
type Op string

// The changes.
const (
	SetDown        Op = "set down"
	SetUp          Op = "set up"
	LeaveMaster    Op = "leave its bridge or bond"
	SetName        Op = "name"
	SetAlias       Op = "set alias"
	SetMAC         Op = "set MAC address"
	SetMTU         Op = "set MTU"
	SetQueue       Op = "set queue length"
	LeavePromisc   Op = "leave promiscuous mode"
	LeaveMulticast Op = "leave all-multicast mode"
	DetachXDP      Op = "detach the XDP program"
	RemoveAddress  Op = "remove address"
	AddAddress     Op = "add address"
)

// Step is a change, with what it is changed to.
type Step struct {
	Op      Op
	Text    string
	Number  int
	Address netip.Prefix
}

func (s Step) String() string {
	switch s.Op {
	case SetName, SetAlias, SetMAC:
		return fmt.Sprintf("%s %q", s.Op, s.Text)
	case SetMTU, SetQueue:
		return fmt.Sprintf("%s %d", s.Op, s.Number)
	case RemoveAddress, AddAddress:
		return fmt.Sprintf("%s %s", s.Op, s.Address)
	}
	return string(s.Op)
}

// steps makes an interface that is at home what it was. The name is left as it is when another
// interface has it meanwhile, taken.
func steps(was State, now Link, taken bool) (steps []Step) {
	is := now.State
	add := func(wanted bool, s Step) {
		if wanted {
			steps = append(steps, s)
		}
	}
	rename := was.Name != is.Name && !taken
	changes := rename || was.MAC != is.MAC || now.Master != 0 || is.XDP && !was.XDP ||
		was.Up != is.Up
	// Names and MAC addresses are changed of interfaces that are down, and what other programs have
	// learned of it meanwhile goes with that.
	add(is.Up && (changes || was.MTU != is.MTU), Step{Op: SetDown})
	down := !is.Up || len(steps) > 0
	add(now.Master != 0, Step{Op: LeaveMaster})
	add(rename, Step{Op: SetName, Text: was.Name})
	add(is.XDP && !was.XDP, Step{Op: DetachXDP})
	add(was.Alias != is.Alias, Step{Op: SetAlias, Text: was.Alias})
	add(was.MAC != is.MAC, Step{Op: SetMAC, Text: was.MAC})
	add(was.MTU != is.MTU, Step{Op: SetMTU, Number: was.MTU})
	add(was.Queue != is.Queue, Step{Op: SetQueue, Number: was.Queue})
	add(is.Promisc && !was.Promisc, Step{Op: LeavePromisc})
	add(is.Multicast && !was.Multicast, Step{Op: LeaveMulticast})
	for _, a := range is.Addresses {
		add(!slices.Contains(was.Addresses, a), Step{Op: RemoveAddress, Address: a})
	}
	add(was.Up && down, Step{Op: SetUp})
	for _, a := range was.Addresses { // last, since some are lost when an interface is set down
		lost := down && a.Addr().Is6()
		add(lost || !slices.Contains(is.Addresses, a), Step{Op: AddAddress, Address: a})
	}
	return steps
}
