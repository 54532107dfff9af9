package addresses

import (
	"net"
	"slices"

	netutils "k8s.io/utils/net"
)

// OfPod returns the addresses in a pod's status, at most one of each family, since the API refuses
// more. ips are the sandbox's, in any order and notation. The family of the node's first address
// comes first, IPv4 if the node has none.
func OfPod(ips, node []string) []string {
	v6 := len(node) > 0 && netutils.IsIPv6String(node[0])
	var parsed []net.IP
	for _, text := range ips {
		if ip := netutils.ParseIPSloppy(text); ip != nil {
			parsed = append(parsed, ip)
		}
	}
	return texts(pair(parsed, v6))
}

// pair returns the first address of the preferred family, and the first of the other one.
func pair(ips []net.IP, v6 bool) []net.IP {
	var out []net.IP
	for _, family := range []bool{v6, !v6} {
		at := slices.IndexFunc(ips, func(ip net.IP) bool { return netutils.IsIPv6(ip) == family })
		if at >= 0 {
			out = append(out, ips[at])
		}
	}
	return out
}

func texts(ips []net.IP) []string {
	out := make([]string, 0, len(ips))
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}
