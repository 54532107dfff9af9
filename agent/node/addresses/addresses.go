package addresses

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
)

// Config says what is known about the node's addresses.
type Config struct {
	// Node is the node's name, which DNS is asked for.
	Node string
	// Asked is --node-ip: nothing, one address, or one of each family. 0.0.0.0 and :: select the
	// primary family.
	Asked []net.IP
	// Standalone is set on a node in no cluster. Its name is not looked up, and it has the loopback
	// address if it has no other.
	Standalone bool
	// Provided is set if a cloud controller manager writes the addresses to the Node object. Until it
	// has, the node has those in Asked.
	Provided bool
}

// Addresses holds the node's addresses. Its methods may be called at any time, and do not block.
type Addresses struct {
	cfg     Config
	host    host
	found   atomic.Pointer[[]net.IP]
	object  atomic.Pointer[func() *v1.Node]
	changes mailbox.Topic
	wrong   complaint.Complaint[string] // with the last look
}

// New finds the node's addresses. If there are none, Run keeps looking; that is no error.
func New(ctx context.Context, cfg Config) *Addresses {
	a := &Addresses{cfg: cfg, host: machine()}
	a.look(ctx)
	return a
}

// Follow sets the source of the Node object, for Provided addresses.
func (a *Addresses) Follow(object func() *v1.Node) { a.object.Store(&object) }

// Changes returns the topic that publishes changes of the addresses.
func (a *Addresses) Changes() *mailbox.Topic { return &a.changes }

// IPv6 reports whether IPv6 was asked for as the primary family.
func (a *Addresses) IPv6() bool { return len(a.cfg.Asked) > 0 && netutils.IsIPv6(a.cfg.Asked[0]) }

// IPs returns the node's addresses for pods, at most one of each family, the primary one first; nil
// until one is known.
func (a *Addresses) IPs() []string {
	if provided := a.provided(); provided != nil {
		return texts(hostIPs(provided))
	}
	if a.cfg.Provided && len(a.cfg.Asked) == 0 {
		return nil
	}
	return texts(*a.found.Load())
}

// OfNode returns the addresses for the Node object until a cloud controller manager writes others;
// nil: none is known yet.
func (a *Addresses) OfNode() []v1.NodeAddress {
	var out []v1.NodeAddress
	if found := *a.found.Load(); !a.cfg.Provided || len(a.cfg.Asked) > 0 {
		for _, ip := range found {
			out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
		}
		if len(found) == 0 {
			return nil
		}
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: a.cfg.Node})
}

// Known returns the addresses at which others reach the node: those of its object if they are
// Provided.
func (a *Addresses) Known() []v1.NodeAddress {
	if provided := a.provided(); provided != nil {
		return provided
	}
	return a.OfNode()
}

// provided returns the addresses that a cloud controller manager has written; nil: none yet.
func (a *Addresses) provided() []v1.NodeAddress {
	object := a.object.Load()
	if !a.cfg.Provided || object == nil {
		return nil
	}
	node := (*object)()
	if node == nil || len(hostIPs(node.Status.Addresses)) == 0 {
		return nil
	}
	return node.Status.Addresses
}

// hostIPs returns the first internal address, or the first external one if there is none, and the
// first address of the other family.
func hostIPs(of []v1.NodeAddress) []net.IP {
	var all []net.IP
	for _, t := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, one := range of {
			if ip := netutils.ParseIPSloppy(one.Address); ip != nil && one.Type == t {
				all = append(all, ip)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return pair(all, netutils.IsIPv6(all[0]))
}

// Run looks again every ten seconds until ctx ends.
func (a *Addresses) Run(ctx context.Context) error {
	tick := time.Tick(10 * time.Second)
	for await.On(ctx, tick) {
		a.look(ctx)
	}
	return nil
}

// look finds the addresses, and logs changes and what is wrong. While something is wrong the addresses
// stay.
func (a *Addresses) look(ctx context.Context) {
	log := klog.FromContext(ctx)
	var was []net.IP
	before := a.found.Load()
	if before != nil {
		was = *before
	}
	found, err := a.cfg.find(ctx, a.host, was)
	if err != nil {
		found = was
	}
	a.found.Store(&found)
	if !slices.EqualFunc(was, found, net.IP.Equal) {
		a.changes.Publish()
		if before != nil {
			log.Info("The node's addresses changed", "addresses", texts(found), "were", texts(was))
		}
	}
	if a.wrong.Begins(complaint.Of(err)) {
		log.Error(err, "The node's address is not known; trying again every ten seconds")
	}
}

// find returns the addresses at which the node is reached: those that were asked for, else those
// that DNS has for its name, else that of the interface with the default route, else the first of
// an interface that is up. A found address stays as long as an interface has it: changes of DNS or
// routes must not move a node that can be reached.
func (c Config) find(ctx context.Context, h host, was []net.IP) ([]net.IP, error) {
	own, err := h.addresses()
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	if c.specified() {
		return c.Asked, present(c.Asked, own)
	}
	if len(was) > 0 && has(own, was[0]) && !was[0].IsLoopback() {
		return was, nil
	}
	if ip := netutils.ParseIPSloppy(c.Node); ip != nil {
		return []net.IP{ip}, nil
	}
	v6 := len(c.Asked) > 0 && netutils.IsIPv6(c.Asked[0])
	for _, candidates := range []func() []net.IP{
		func() []net.IP { return c.named(ctx, h) },
		func() []net.IP { return h.routed(v6) },
		func() []net.IP { return own },
	} {
		usable := slices.DeleteFunc(slices.Clone(candidates()), func(ip net.IP) bool {
			return !ip.IsGlobalUnicast() || !has(own, ip)
		})
		if best := pair(usable, v6); len(best) > 0 {
			return best[:1], nil
		}
	}
	if c.Standalone {
		return []net.IP{net.IPv4(127, 0, 0, 1)}, nil
	}
	return nil, errors.New("no interface that is up has a global address; connect the host to its " +
		"network, or say with --node-ip which address is the node's")
}

// specified reports whether --node-ip names addresses, not only a family.
func (c Config) specified() bool { return len(c.Asked) > 0 && !c.Asked[0].IsUnspecified() }

// named returns the addresses that DNS has for the node's name.
func (c Config) named(ctx context.Context, h host) []net.IP {
	if c.Standalone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return h.lookUp(ctx, c.Node)
}

// present reports the addresses in asked that no interface of the host has.
func present(asked, own []net.IP) error {
	var problems []error
	for _, ip := range asked {
		if !has(own, ip) {
			problems = append(problems, fmt.Errorf("--node-ip %s is on none of the host's "+
				"interfaces that are up; give one of %v", ip, texts(own)))
		}
	}
	return errors.Join(problems...)
}

func has(own []net.IP, ip net.IP) bool { return slices.ContainsFunc(own, ip.Equal) }
