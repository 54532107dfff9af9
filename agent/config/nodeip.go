package config

import (
	"net"
	"strings"

	nodeutil "k8s.io/component-helpers/node/util"
)

// NodeIPs returns the addresses of --node-ip, the primary one first: none, one, or one of each
// family. A single unspecified address selects the preferred family.
func (c *Config) NodeIPs() []net.IP {
	ips, _, err := nodeutil.ParseNodeIPArgument(c.Node.IP, c.Cluster.Provider)
	if err != nil { // it was validated
		return nil
	}
	return ips
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
	ips, not, err := nodeutil.ParseNodeIPArgument(c.Node.IP, c.Cluster.Provider)
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
