package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// cadvisorInput holds the data of /metrics/cadvisor.
type cadvisorInput struct {
	*Snapshot
	usage   Usage
	runtime cri.Metrics
	// groups holds the cgroups of pods and containers by the id of the sandbox or container.
	groups map[string]group
}

// group describes a cgroup; it has only the path if the cgroup was not read.
type group struct {
	path    string
	counts  *kernel.Counts
	devices []kernel.DeviceIO
	// interfaces are set for a pod with a network of its own.
	interfaces []kernel.Interface
}

// cadvisorMetrics returns metrics with cAdvisor's names and labels. CPU time and memory come from
// the snapshot, because runtimes round CPU time down to seconds. The other metrics come from the
// runtime if it has them, otherwise from cgroups and the snapshot.
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

// ownerBytes is the approximate length of the text for each owner.
const ownerBytes = 3 << 10

// identity identifies a container. A pod and the machine have only the path of their cgroup.
type identity struct{ container, path, image, id string }

// names returns the labels that every metric has.
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

// owners returns the machine, the pods and the containers.
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

// epoch returns a time as a metric's value, in seconds.
func epoch(at time.Time) float64 { return float64(at.Unix()) }
