package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// Interface is what a network interface has received and sent.
type Interface struct {
	Name   string
	Rx, Tx Traffic
}

// Traffic is what went one way.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// Interfaces are the network interfaces of the machine by name, without those of the loopback, of
// bridges that Docker made and of the host's ends of pods' interfaces.
func (p Proc) Interfaces() ([]Interface, error) {
	all, err := p.fs.NetDev()
	if err != nil {
		return nil, fmt.Errorf("read network interfaces: %w", err)
	}
	return slices.DeleteFunc(interfaces(all), func(i Interface) bool {
		return strings.HasPrefix(i.Name, "veth") || strings.HasPrefix(i.Name, "docker")
	}), nil
}

// InterfacesOf are those of the network namespace that a process is in, by name, without the loopback.
func (p Proc) InterfacesOf(pid int) ([]Interface, error) {
	process, err := p.fs.Proc(pid)
	if err != nil {
		return nil, fmt.Errorf("read network interfaces: %w", err)
	}
	all, err := process.NetDev()
	if err != nil {
		return nil, fmt.Errorf("read network interfaces of process %d: %w", pid, err)
	}
	return interfaces(all), nil
}

func interfaces(all procfs.NetDev) []Interface {
	out := make([]Interface, 0, len(all))
	for name, i := range all {
		if name == "lo" {
			continue
		}
		out = append(out, Interface{name, Traffic{i.RxBytes, i.RxPackets, i.RxErrors, i.RxDropped},
			Traffic{i.TxBytes, i.TxPackets, i.TxErrors, i.TxDropped}})
	}
	slices.SortFunc(out, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	return out
}
