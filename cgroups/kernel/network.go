package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// Interface counts what a network interface received and sent.
type Interface struct {
	Name   string
	Rx, Tx Traffic
}

// Traffic counts one direction.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// Interfaces returns the machine's network interfaces by name, without the loopback, Docker's
// bridges and the host's ends of pods' interfaces.
func (p Proc) Interfaces() ([]Interface, error) {
	all, err := p.fs.NetDev()
	if err != nil {
		return nil, fmt.Errorf("read network interfaces: %w", err)
	}
	return slices.DeleteFunc(interfaces(all), func(i Interface) bool {
		return strings.HasPrefix(i.Name, "veth") || strings.HasPrefix(i.Name, "docker")
	}), nil
}

// InterfacesOf returns the interfaces in the network namespace of a process, by name, without the
// loopback.
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
