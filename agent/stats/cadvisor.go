package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

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
	network.write(e, all)
	traffic.write(e, all)
	filesystems.write(e, all)
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
	node := consumed(n.CPU, n.Memory, n.Swap)
	node.io, node.network = ptr.Deref(n.IO, node.io), ptr.Deref(n.Network, node.network)
	out := []owner{{labels: names(identity{path: "/"}, statsapi.PodReference{}), consumption: node,
		start: n.StartTime.Time, at: in.At, cgroup: root}}
	for _, p := range in.Pods {
		of := consumed(p.Stats.CPU, p.Stats.Memory, p.Stats.Swap)
		of.io, of.network = ptr.Deref(p.Stats.IO, of.io), ptr.Deref(p.Stats.Network, of.network)
		out = append(out, owner{labels: in.podLabels(p), consumption: of,
			start: p.Stats.StartTime.Time, at: in.At, cgroup: in.groups[p.Sandbox]})
		for _, c := range p.Containers {
			of := consumed(c.Stats.CPU, c.Stats.Memory, c.Stats.Swap)
			of.io = ptr.Deref(c.Stats.IO, of.io)
			of.disk = ptr.Deref(on(in.usage.Containers, c.Stats.Rootfs), of.disk)
			out = append(out, owner{labels: in.containerLabels(p, c), consumption: of,
				start: c.Stats.StartTime.Time, at: in.At, cgroup: in.groups[c.ID]})
		}
	}
	return out
}

// epoch is a time as a metric's value.
func epoch(at time.Time) float64 { return float64(at.Unix()) }
