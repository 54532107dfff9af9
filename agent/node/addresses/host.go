package addresses

import (
	"context"
	"fmt"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// host provides a host's addresses.
type host struct {
	// addresses returns those of the interfaces that are up, in the order of the interfaces.
	addresses func() ([]net.IP, error)
	// routed returns the address of the interface with the default route, if possible of that family;
	// none without a default route.
	routed func(v6 bool) []net.IP
	// lookUp asks DNS; it returns nothing without an answer.
	lookUp func(ctx context.Context, name string) []net.IP
}

// machine returns this host.
func machine() host {
	return host{
		addresses: interfaceAddresses,
		routed: func(v6 bool) []net.IP {
			prefer := net.IPv4zero
			if v6 {
				prefer = net.IPv6unspecified
			}
			ip, err := utilnet.ResolveBindAddress(prefer)
			if err != nil {
				return nil
			}
			return []net.IP{ip}
		},
		lookUp: func(ctx context.Context, name string) []net.IP {
			ips, err := net.DefaultResolver.LookupIP(ctx, "ip", name)
			if err != nil {
				return nil
			}
			return ips
		},
	}
}

func interfaceAddresses() ([]net.IP, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []net.IP
	for _, link := range links {
		if link.Flags&net.FlagUp == 0 {
			continue
		}
		has, err := link.Addrs()
		if err != nil {
			continue // it disappeared meanwhile
		}
		for _, one := range has {
			if ip, ok := one.(*net.IPNet); ok {
				out = append(out, ip.IP)
			}
		}
	}
	return out, nil
}
