package podspec

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
)

// HostPort is a port of the host; without an address, on all addresses.
type HostPort struct {
	Protocol v1.Protocol
	IP       string
	Port     int32
}

// HostPorts returns the ports of the host that the pod occupies as long as it runs.
func HostPorts(pod *v1.Pod) (out []HostPort) {
	for c, kind := range Containers(pod) {
		if kind == Init {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := HostPort{cmp.Or(p.Protocol, v1.ProtocolTCP), p.HostIP, p.HostPort}
			if h.IP == "0.0.0.0" || h.IP == "::" {
				h.IP = ""
			}
			out = append(out, h)
		}
	}
	return out
}

// Conflicts reports whether only one of the two can be had.
func (h HostPort) Conflicts(o HostPort) bool {
	return h.Port == o.Port && h.Protocol == o.Protocol &&
		(h.IP == o.IP || h.IP == "" || o.IP == "")
}
