package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cgroups/kernel"
)

// machineGroup is the key of the machine's own cgroup.
const machineGroup = ""

// readGroups finds the cgroups of pods and containers, keyed by the id of the sandbox or container.
// It reads them if counts is set: the runtime then does not provide their metrics.
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
		if err != nil { // it has just disappeared
			return group{path: path}
		}
		return group{path: path, counts: &c, devices: reader.IO(path)}
	}
	if counts {
		out[machineGroup] = group{path: "/", devices: reader.IO("/"), interfaces: s.Machine.Interfaces}
	}
	for _, p := range s.Pods {
		paths := g.paths(&p)
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

// interfaces returns the interfaces in the pod's network namespace, as one of its processes sees
// them; none if the pod has no process.
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

// thingsOf describes metrics of things that an owner may have several of; a label tells them apart.
type thingsOf[T any] struct {
	kind, label string
	of          func(*owner) ([]T, time.Time)
	name        func(T) string
	families    []thingFamily[T]
}

type thingFamily[T any] struct {
	name, help string
	of         func(T) *uint64 // nil: not known
}

// write writes the metrics that were not written before.
func (t thingsOf[T]) write(e *exposition, all []owner) {
	for _, f := range t.families {
		if e.families.Has(f.name) {
			continue
		}
		e.family(f.name, t.kind, f.help)
		for i := range all {
			things, at := t.of(&all[i])
			for _, one := range things {
				if value := f.of(one); value != nil {
					e.sample(f.name,
						point{all[i].labels, labels(t.label, t.name(one)), float64(*value), at})
				}
			}
		}
	}
}

// network holds the counters of interfaces of pods and of the machine.
var network = thingsOf[statsapi.InterfaceStats]{
	kind: counterType, label: "interface", of: func(o *owner) ([]statsapi.InterfaceStats, time.Time) {
		return o.network.Interfaces, o.network.Time.Time
	},
	name: func(i statsapi.InterfaceStats) string { return i.Name },
	families: []thingFamily[statsapi.InterfaceStats]{
		{"container_network_receive_bytes_total", "Bytes received.",
			func(i statsapi.InterfaceStats) *uint64 { return i.RxBytes }},
		{"container_network_receive_errors_total", "Errors while receiving.",
			func(i statsapi.InterfaceStats) *uint64 { return i.RxErrors }},
		{"container_network_transmit_bytes_total", "Bytes sent.",
			func(i statsapi.InterfaceStats) *uint64 { return i.TxBytes }},
		{"container_network_transmit_errors_total", "Errors while sending.",
			func(i statsapi.InterfaceStats) *uint64 { return i.TxErrors }},
	},
}

// traffic holds counters of interfaces that the snapshot lacks because runtimes do not report them.
// They are read through a process of the pod.
var traffic = thingsOf[kernel.Interface]{
	kind: counterType, label: "interface",
	of:   func(o *owner) ([]kernel.Interface, time.Time) { return o.cgroup.interfaces, o.at },
	name: func(i kernel.Interface) string { return i.Name },
	families: []thingFamily[kernel.Interface]{
		{"container_network_receive_packets_total", "Packets received.",
			func(i kernel.Interface) *uint64 { return &i.Rx.Packets }},
		{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.",
			func(i kernel.Interface) *uint64 { return &i.Rx.Dropped }},
		{"container_network_transmit_packets_total", "Packets sent.",
			func(i kernel.Interface) *uint64 { return &i.Tx.Packets }},
		{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.",
			func(i kernel.Interface) *uint64 { return &i.Tx.Dropped }},
	},
}

// filesystems describes the use of the filesystem with the writable layers, and its room.
var filesystems = thingsOf[statsapi.FsStats]{
	kind: gaugeType, label: "device",
	of: func(o *owner) ([]statsapi.FsStats, time.Time) {
		return []statsapi.FsStats{o.disk}, o.disk.Time.Time
	},
	name: func(statsapi.FsStats) string { return "" },
	families: []thingFamily[statsapi.FsStats]{
		{"container_fs_usage_bytes", "Bytes that the container's writable layer uses.",
			func(s statsapi.FsStats) *uint64 { return s.UsedBytes }},
		{"container_fs_limit_bytes", "Bytes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.CapacityBytes }},
		{"container_fs_inodes_total", "Inodes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.Inodes }},
		{"container_fs_inodes_free", "Free inodes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.InodesFree }},
	},
}

// blockDevices describes reads from and writes to block devices.
var blockDevices = thingsOf[kernel.DeviceIO]{
	kind: counterType, label: "device",
	of:   func(o *owner) ([]kernel.DeviceIO, time.Time) { return o.cgroup.devices, o.at },
	name: func(d kernel.DeviceIO) string { return d.Device },
	families: []thingFamily[kernel.DeviceIO]{
		{"container_fs_reads_bytes_total", "Bytes read.",
			func(d kernel.DeviceIO) *uint64 { return &d.ReadBytes }},
		{"container_fs_reads_total", "Reads.", func(d kernel.DeviceIO) *uint64 { return &d.Reads }},
		{"container_fs_writes_bytes_total", "Bytes written.",
			func(d kernel.DeviceIO) *uint64 { return &d.WrittenBytes }},
		{"container_fs_writes_total", "Writes.", func(d kernel.DeviceIO) *uint64 { return &d.Writes }},
	},
}
