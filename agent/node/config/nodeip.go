package config

import (
	"errors"
	"net"
	"strings"

	netutils "k8s.io/utils/net"
)

// NodeIPs returns the addresses of --node-ip, the primary one first: none, one, or one of each
// family. A single unspecified address selects the preferred family.
func (c *Config) NodeIPs() []net.IP {
	ips, _, err := parseNodeIP(c.Node.IP, c.Cluster.Provider)
	if err != nil { // it was validated
		return nil
	}
	return ips
}

// parseNodeIP returns the addresses of --node-ip, and the texts among them that are none. The helper
// of component-helpers does the same, but would link a client of every API into whatever reads a
// configuration.
func parseNodeIP(text, provider string) (ips []net.IP, not []string, err error) {
	if text == "" {
		return nil, nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if ip := netutils.ParseIPSloppy(part); ip != nil {
			ips = append(ips, ip)
		} else {
			not = append(not, part)
		}
	}
	switch {
	case len(ips) < 2:
		return ips, not, nil
	case len(ips) > 2, netutils.IsIPv6(ips[0]) == netutils.IsIPv6(ips[1]):
		return nil, not, errors.New("two addresses must be of the two families")
	case provider != "" && provider != "external":
		return nil, not, errors.New("this cloud provider allows one address")
	case ips[0].IsUnspecified(), ips[1].IsUnspecified():
		return nil, not, errors.New("0.0.0.0 and :: cannot be one of two addresses")
	}
	return ips, not, nil
}

// ProvidedIP returns the addresses by which a cloud controller manager must choose the node's, separated
// by commas; empty: it may choose.
func (c *Config) ProvidedIP() string {
	asked := c.NodeIPs()
	if len(asked) == 0 || asked[0].IsUnspecified() {
		return ""
	}
	var out []string
	for _, ip := range asked {
		out = append(out, ip.String())
	}
	return strings.Join(out, ",")
}

func validateNodeIP(c *Config, p *problems) {
	const flag = "--node-ip"
	ips, not, err := parseNodeIP(c.Node.IP, c.Cluster.Provider)
	for _, text := range not {
		p.invalid(flag, text, "must be an IP address")
	}
	if err != nil {
		p.invalid(flag, c.Node.IP, "%v; give one address, or one IPv4 and one IPv6 address with a "+
			"comma", err)
	}
	for _, ip := range ips {
		p.forbid(ip.IsMulticast(), flag, ip.String()+" is a multicast address, which no node has")
		p.forbid(ip.IsLinkLocalUnicast(), flag, ip.String()+" is a link-local address, at which "+
			"other nodes do not find this one")
	}
}
