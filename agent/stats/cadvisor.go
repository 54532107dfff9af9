package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/stats/kernel"
	"github.com/numalet/numalet/cri"
)

// cadvisorInput is what /metrics/cadvisor is made of.
type cadvisorInput struct {
	*Snapshot
	usage   Usage
	runtime cri.Metrics
	// groups are the cgroups of pods and containers by the id of the sandbox or container.
	groups map[string]group
}

// group is a cgroup; with nothing but its path where it was not read.
type group struct {
	path    string
	counts  *kernel.Counts
	devices []kernel.DeviceIO
	// interfaces are those of a pod that has a network of its own.
	interfaces []kernel.Interface
}

// cadvisorMetrics have the names and labels that cAdvisor has. CPU time and memory come from the
// snapshot: runtimes round CPU time down to seconds. All else comes from the runtime's metrics
// where it has them, and otherwise from cgroups and the snapshot.
func cadvisorMetrics(in cadvisorInput) []byte {
	all := in.owners()
	e := &exposition{text: make([]byte, 0, len(all)*ownerBytes)}
	e.owners(exactFamilies, all)
	e.runtime(in)
	e.owners(groupFamilies, all)
	in.network(e)
	traffic.write(e, all)
	in.filesystems(e)
	blockDevices.write(e, all)
	host := in.Machine.Host
	machine := []owner{{machine: &in.Machine, labels: labels("boot_id", host.BootID,
		"machine_id", host.MachineID, "system_uuid", host.SystemUUID)}}
	e.owners(machineFamilies, machine)
	for _, name := range []string{"container_scrape_error", "machine_scrape_error"} {
		e.family(name, gaugeType, "Always 0: what could not be read is no answer.")
		e.sample(name, point{})
	}
	return e.text
}

// ownerBytes is about what the text has for each owner.
const ownerBytes = 3 << 10

// identity is what names a container; of a pod or the machine it has but the path of a cgroup.
type identity struct{ container, path, image, id string }

// names are the labels that every metric has.
func names(of identity, pod statsapi.PodReference) string {
	return labels("container", of.container, "id", of.path, "image", of.image, "name", of.id,
		"namespace", pod.Namespace, "pod", pod.Name)
}

func (in cadvisorInput) podLabels(p Pod) string {
	return names(identity{path: in.groups[p.Sandbox].path}, p.Stats.PodRef)
}

func (in cadvisorInput) containerLabels(p Pod, c Container) string {
	return names(identity{c.Stats.Name, in.groups[c.ID].path, c.Image, c.ID}, p.Stats.PodRef)
}

// owners are the machine, pods and containers.
func (in cadvisorInput) owners() []owner {
	n, root := in.Node, in.groups[machineGroup]
	root.counts = &in.Machine.Counts
	out := []owner{{labels: names(identity{path: "/"}, statsapi.PodReference{}), cpu: n.CPU,
		memory: n.Memory, io: n.IO, start: n.StartTime.Time, at: in.At, group: root}}
	for _, p := range in.Pods {
		out = append(out, owner{labels: in.podLabels(p), cpu: p.Stats.CPU,
			memory: p.Stats.Memory, io: p.Stats.IO, start: p.Stats.StartTime.Time, at: in.At,
			group: in.groups[p.Sandbox]})
		for _, c := range p.Containers {
			out = append(out, owner{labels: in.containerLabels(p, c), cpu: c.Stats.CPU,
				memory: c.Stats.Memory, io: c.Stats.IO, start: c.Stats.StartTime.Time, at: in.At,
				group: in.groups[c.ID]})
		}
	}
	return out
}

// network has the counters of pods' interfaces, and of the machine's.
func (in cadvisorInput) network(e *exposition) {
	for _, f := range []struct {
		name, help string
		of         func(statsapi.InterfaceStats) *uint64
	}{
		{"container_network_receive_bytes_total", "Bytes received.",
			func(i statsapi.InterfaceStats) *uint64 { return i.RxBytes }},
		{"container_network_receive_errors_total", "Errors while receiving.",
			func(i statsapi.InterfaceStats) *uint64 { return i.RxErrors }},
		{"container_network_transmit_bytes_total", "Bytes sent.",
			func(i statsapi.InterfaceStats) *uint64 { return i.TxBytes }},
		{"container_network_transmit_errors_total", "Errors while sending.",
			func(i statsapi.InterfaceStats) *uint64 { return i.TxErrors }},
	} {
		if e.families.Has(f.name) {
			continue
		}
		e.family(f.name, counterType, f.help)
		of := func(base string, n *statsapi.NetworkStats) {
			if n == nil {
				return
			}
			for _, i := range n.Interfaces {
				if value := f.of(i); value != nil {
					e.sample(f.name, point{
						base, labels("interface", i.Name), float64(*value), n.Time.Time,
					})
				}
			}
		}
		of(names(identity{path: "/"}, statsapi.PodReference{}), in.Node.Network)
		for _, p := range in.Pods {
			of(in.podLabels(p), p.Stats.Network)
		}
	}
}

// filesystems have what containers use of that of writable layers, and the room there.
func (in cadvisorInput) filesystems(e *exposition) {
	for _, f := range []struct {
		name, help string
		of         func(statsapi.FsStats) *uint64
	}{
		{"container_fs_usage_bytes", "Bytes that the container's writable layer uses.",
			func(s statsapi.FsStats) *uint64 { return s.UsedBytes }},
		{"container_fs_limit_bytes", "Bytes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.CapacityBytes }},
		{"container_fs_inodes_total", "Inodes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.Inodes }},
		{"container_fs_inodes_free", "Free inodes of the filesystem.",
			func(s statsapi.FsStats) *uint64 { return s.InodesFree }},
	} {
		if e.families.Has(f.name) {
			continue
		}
		e.family(f.name, gaugeType, f.help)
		for _, p := range in.Pods {
			for _, c := range p.Containers {
				used := on(in.usage.Containers, c.Stats.Rootfs)
				if used == nil {
					continue
				}
				if value := f.of(*used); value != nil {
					e.sample(f.name, point{in.containerLabels(p, c), labels("device", ""),
						float64(*value), used.Time.Time})
				}
			}
		}
	}
}

// epoch is a time as a metric's value.
func epoch(at time.Time) float64 { return float64(at.Unix()) }
