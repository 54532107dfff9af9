package stats

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/stats/kernel"
)

// machineGroup is the key of the machine's own cgroup.
const machineGroup = ""

// readGroups finds the cgroups of pods and containers, by the id of the sandbox or container, and reads
// them if what they count is not to be had from the runtime.
func (c *Collector) readGroups(s *Snapshot, counts bool) map[string]group {
	out := map[string]group{}
	g := c.cfg.Groups
	if g.Paths == nil {
		return out
	}
	reader := g.Reader()
	one := func(path string) group {
		if path == "" || !counts {
			return group{path: path}
		}
		c, err := reader.Read(path)
		if err != nil { // it has just gone
			return group{path: path}
		}
		return group{path: path, counts: &c, devices: reader.IO(path)}
	}
	if counts {
		out[machineGroup] = group{path: "/", devices: reader.IO("/"), interfaces: s.Machine.Interfaces}
	}
	for _, p := range s.Pods {
		paths, err := g.Paths(types.UID(p.Stats.PodRef.UID))
		if err != nil {
			continue
		}
		pod := one(paths.Pod)
		for _, c := range p.Containers {
			out[c.ID] = one(paths.Container(c.ID))
		}
		if counts && p.Stats.Network != nil {
			pod.interfaces = c.interfaces(reader, p, paths.Container)
		}
		out[p.Sandbox] = pod
	}
	return out
}

// interfaces are those of the pod's network namespace, as a process of the pod sees them; none if it
// has no process.
func (c *Collector) interfaces(r *kernel.Reader, p Pod, path func(id string) string,
) []kernel.Interface {
	ids := []string{p.Sandbox}
	for _, container := range p.Containers {
		ids = append(ids, container.ID)
	}
	for _, id := range ids {
		if at := path(id); at != "" {
			if pid, ok := r.Process(at); ok {
				found, err := c.cfg.Proc.InterfacesOf(pid)
				if err == nil {
					return found
				}
			}
		}
	}
	return nil
}

// countersOf are the counters of the things of one sort that an owner has several of, which are told
// apart by a label.
type countersOf[T any] struct {
	label    string
	of       func(owner) []T
	name     func(T) string
	families []countedBy[T]
}

type countedBy[T any] struct {
	name, help string
	of         func(T) uint64
}

// write writes those that were not written yet.
func (c countersOf[T]) write(e *exposition, all []owner) {
	for _, f := range c.families {
		if e.families.Has(f.name) {
			continue
		}
		e.family(f.name, counterType, f.help)
		for _, o := range all {
			for _, one := range c.of(o) {
				e.sample(f.name,
					point{o.labels, labels(c.label, c.name(one)), float64(f.of(one)), o.at})
			}
		}
	}
}

// traffic has the counters of interfaces that the snapshot has not: what the runtime does not count
// is read where the pod's processes see it.
var traffic = countersOf[kernel.Interface]{
	label: "interface", of: func(o owner) []kernel.Interface { return o.interfaces },
	name: func(i kernel.Interface) string { return i.Name },
	families: []countedBy[kernel.Interface]{
		{"container_network_receive_packets_total", "Packets received.",
			func(i kernel.Interface) uint64 { return i.Rx.Packets }},
		{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.",
			func(i kernel.Interface) uint64 { return i.Rx.Dropped }},
		{"container_network_transmit_packets_total", "Packets sent.",
			func(i kernel.Interface) uint64 { return i.Tx.Packets }},
		{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.",
			func(i kernel.Interface) uint64 { return i.Tx.Dropped }},
	},
}

// blockDevices have what was read from block devices and written to them.
var blockDevices = countersOf[kernel.DeviceIO]{
	label: "device", of: func(o owner) []kernel.DeviceIO { return o.devices },
	name: func(d kernel.DeviceIO) string { return d.Device },
	families: []countedBy[kernel.DeviceIO]{
		{"container_fs_reads_bytes_total", "Bytes read.",
			func(d kernel.DeviceIO) uint64 { return d.ReadBytes }},
		{"container_fs_reads_total", "Reads.", func(d kernel.DeviceIO) uint64 { return d.Reads }},
		{"container_fs_writes_bytes_total", "Bytes written.",
			func(d kernel.DeviceIO) uint64 { return d.WrittenBytes }},
		{"container_fs_writes_total", "Writes.", func(d kernel.DeviceIO) uint64 { return d.Writes }},
	},
}
