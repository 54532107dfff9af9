package eni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// kernel is netlink in one network namespace, where the interfaces are at home.
type kernel struct {
	home   netns.NsHandle
	handle *netlink.Handle
	// spaces finds the other namespaces where interfaces may be.
	spaces namespaces
}

// newKernel opens netlink in a network namespace.
func newKernel(home netns.NsHandle, spaces namespaces) (*kernel, error) {
	handle, err := netlink.NewHandleAt(home, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("talk to netlink: %w", err)
	}
	return &kernel{home: home, handle: handle, spaces: spaces}, nil
}

// Close implements Network. It closes home too.
func (k *kernel) Close() error {
	k.handle.Close()
	return k.home.Close()
}

// Netlink opens netlink in the network namespace of the process. p says where to look for other
// namespaces.
func Netlink(p Places) (Network, error) {
	home, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	k, err := newKernel(home, namespaces{p.Namespaces, p.Proc})
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	return k, nil
}

// Links implements Kernel.
func (k *kernel) Links() ([]Link, error) { return linksOf(k.handle) }

// linksOf returns the links of a namespace with their addresses, without the loopback.
func linksOf(h *netlink.Handle) ([]Link, error) {
	links, err := again(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addresses, err := again(func() ([]netlink.Addr, error) {
		return h.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	byIndex := map[int][]netip.Prefix{}
	for _, a := range addresses {
		ip, ok := netip.AddrFromSlice(a.IP)
		ones, _ := a.Mask.Size()
		if ok && a.Scope < unix.RT_SCOPE_LINK {
			byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex],
				netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	var out []Link
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 {
			out = append(out, linkOf(l, byIndex[l.Attrs().Index]))
		}
	}
	return out, nil
}

// again repeats a question while the kernel says that a change interrupted its answer.
func again[T any](ask func() ([]T, error)) (all []T, err error) {
	for range 5 {
		if all, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}

func linkOf(l netlink.Link, addresses []netip.Prefix) Link {
	a := l.Attrs()
	slices.SortFunc(addresses, netip.Prefix.Compare)
	out := Link{
		Index: a.Index, Permanent: a.PermHWAddr.String(), Parent: a.ParentDev,
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, Master: a.MasterIndex,
		State: State{
			Name: a.Name, AltNames: slices.Sorted(slices.Values(a.AltNames)),
			MAC: a.HardwareAddr.String(), Alias: a.Alias, MTU: a.MTU, Queue: a.TxQLen,
			Up:        a.RawFlags&unix.IFF_UP != 0,
			Promisc:   a.RawFlags&unix.IFF_PROMISC != 0,
			Multicast: a.RawFlags&unix.IFF_ALLMULTI != 0,
			XDP:       a.Xdp != nil && a.Xdp.Attached, Addresses: addresses,
			Settings: Settings{
				Group:       int(a.Group),
				NoMulticast: a.RawFlags&unix.IFF_MULTICAST == 0,
				NoARP:       a.RawFlags&unix.IFF_NOARP != 0,
				GSOSize:     int(a.GSOMaxSize), GSOSegs: int(a.GSOMaxSegs), GROSize: int(a.GROMaxSize),
			},
		},
	}
	if l.Type() != "device" {
		out.Kind = l.Type()
	}
	// For other kinds, such as veth, ParentIndex is the other end, perhaps in another namespace.
	if slices.Contains([]string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}, out.Kind) {
		out.Lower = a.ParentIndex
	}
	return out
}

// Routes implements Kernel. Only the main table counts: default routes of other tables serve
// policies for secondary interfaces.
func (k *kernel) Routes() (indexes []int, err error) {
	routes, err := again(func() ([]netlink.Route, error) {
		return k.handle.RouteListFiltered(netlink.FAMILY_ALL,
			&netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if ones != 0 || r.Type == unix.RTN_UNREACHABLE {
			continue
		}
		if r.LinkIndex != 0 {
			indexes = append(indexes, r.LinkIndex)
		}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
	}
	return indexes, nil
}

// Watch implements Kernel.
func (k *kernel) Watch(ctx context.Context, changed func()) error {
	done := make(chan struct{})
	defer close(done)
	ended := make(chan error, 3)
	follow := func(what string, err error) {
		select {
		case ended <- fmt.Errorf("follow %s: %w", what, err):
		default:
		}
	}
	links, addresses := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate)
	routes := make(chan netlink.RouteUpdate)
	err := errors.Join(
		netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{
			Namespace: &k.home, ErrorCallback: func(err error) { follow("links", err) }}),
		netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{
			Namespace: &k.home, ErrorCallback: func(err error) { follow("addresses", err) }}),
		netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{
			Namespace: &k.home, ErrorCallback: func(err error) { follow("routes", err) }}))
	if err != nil {
		return fmt.Errorf("follow changes of interfaces: %w", err)
	}
	defer func() { // until the sockets are closed, updates need a reader
		go drain(links)
		go drain(addresses)
		go drain(routes)
	}()
	changed() // for changes from before the subscription
	for {
		select {
		case <-links:
		case <-addresses:
		case <-routes:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
		changed()
	}
}

func drain[T any](c <-chan T) {
	for range c { //nolint:revive // until it is closed
	}
}
