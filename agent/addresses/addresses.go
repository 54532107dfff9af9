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

	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/topology/await"
)

// Config says what is known of the node's addresses.
type Config struct {
	// Node is the node's name; DNS is asked for it.
	Node string
	// Asked is --node-ip: nothing, one address, or one of each family. 0.0.0.0 and :: say which
	// family is looked for first.
	Asked []net.IP
	// Standalone: nobody calls the node by its name. It has the loopback address if no other.
	Standalone bool
	// Provided: a cloud controller manager writes the addresses to the node's object. Until it has,
	// the node has those that were asked for.
	Provided bool
}

// Addresses are the node's. Its methods may be called at any time, and do not block.
type Addresses struct {
	cfg     Config
	host    host
	found   atomic.Pointer[[]net.IP]
	object  atomic.Pointer[func() *v1.Node]
	changes mailbox.Topic
}

// New looks for the node's addresses. That there are none is no error: Run looks on.
func New(ctx context.Context, cfg Config) *Addresses {
	a := &Addresses{cfg: cfg, host: machine()}
	a.look(ctx, "")
	return a
}

// Follow says where the node's object is, for addresses that are Provided.
func (a *Addresses) Follow(object func() *v1.Node) { a.object.Store(&object) }

// Changes has those that want to know that the addresses are others.
func (a *Addresses) Changes() *mailbox.Topic { return &a.changes }

// IPv6 reports whether IPv6 is the family that was asked for first.
func (a *Addresses) IPv6() bool { return len(a.cfg.Asked) > 0 && netutils.IsIPv6(a.cfg.Asked[0]) }

// IPs are the node's addresses as pods are told them, at most one of each family, the primary one
// first; nil as long as none is known.
func (a *Addresses) IPs() []string {
	if provided := a.provided(); provided != nil {
		return texts(hostIPs(provided))
	}
	if a.cfg.Provided && len(a.cfg.Asked) == 0 {
		return nil
	}
	return texts(*a.found.Load())
}

// OfNode is what the node's object is to say until a cloud controller manager says otherwise; nil:
// nothing is known yet.
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

// Known are the addresses by which others reach the node: those of its object where they are
// Provided.
func (a *Addresses) Known() []v1.NodeAddress {
	if provided := a.provided(); provided != nil {
		return provided
	}
	return a.OfNode()
}

// provided are the addresses that a cloud controller manager has written; nil: none yet.
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

// hostIPs are the first internal address, or an external one if there is no internal one, and the
// first of the other family.
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

// Run looks again each ten seconds until ctx ends.
func (a *Addresses) Run(ctx context.Context) error {
	tick := time.Tick(10 * time.Second)
	said := ""
	for await.On(ctx, tick) {
		said = a.look(ctx, said)
	}
	return nil
}

// look looks for the addresses, says what is new, and returns what is wrong. It is silent about what
// was said before. As long as something is wrong the addresses stay as they were.
func (a *Addresses) look(ctx context.Context, said string) string {
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
			log.Info("The node's addresses are others", "addresses", texts(found), "were", texts(was))
		}
	}
	if err == nil {
		return ""
	}
	if err.Error() != said {
		log.Error(err, "The node's address is not known; it is looked for each ten seconds")
	}
	return err.Error()
}

// find is where the node is reached: at the addresses that were asked for; at what DNS has for its
// name; at the address of the interface with the default route; at the first address of an
// interface that is up. One that was found stays as long as an interface has it: what DNS or a
// routing table say meanwhile must not move a node that can be reached.
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

// specified reports whether --node-ip has addresses, and not only a family.
func (c Config) specified() bool { return len(c.Asked) > 0 && !c.Asked[0].IsUnspecified() }

// named is what DNS has for the node's name.
func (c Config) named(ctx context.Context, h host) []net.IP {
	if c.Standalone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return h.lookUp(ctx, c.Node)
}

// present says which of asked no interface of the host has.
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
