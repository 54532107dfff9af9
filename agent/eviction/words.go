package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/podspec"
)

// The kubelet's reasons of events.
const (
	ReasonEvicted      = status.ReasonEvicted
	ReasonThresholdMet = "EvictionThresholdMet" // on the node
)

// The annotations of the event of an evicted pod, the kubelet's.
const (
	annotationStarved         = "starved_resource"
	annotationContainers      = "offending_containers"
	annotationContainersUsage = "offending_containers_usage"
)

// Words are what is said of an evicted pod.
type Words struct {
	Message     string
	Annotations map[string]string // of the event
}

// wordsOf says in the kubelet's words why the pod is evicted.
func wordsOf(c *Candidate, t *Threshold, r Reading) Words {
	name := t.Signal.Resource()
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", name)
	fmt.Fprintf(&b, "Threshold quantity: %s, available: %s. ",
		amount(name, t.of(r.Capacity, false)), amount(name, r.Available))
	var names, usages []string
	for container := range podspec.All(c.Pod) {
		used, known := containerUse(c.Stats, container.Name, name)
		request := container.Resources.Requests[name]
		if !known || used <= request.Value() {
			continue
		}
		usage := amount(name, used)
		fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ",
			container.Name, usage, request.String(), name)
		names, usages = append(names, container.Name), append(usages, usage)
	}
	return Words{b.String(), map[string]string{
		annotationStarved:         string(name),
		annotationContainers:      strings.Join(names, ","),
		annotationContainersUsage: strings.Join(usages, ","),
	}}
}

// amount writes an amount of a resource: bytes with binary units, a count without.
func amount(name v1.ResourceName, value int64) string {
	format := resource.BinarySI
	if name == resourceInodes || name == resourcePIDs {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(value, format).String()
}

// containerUse is what a container uses of the resource by itself; known is false where that is not
// measured.
func containerUse(p *statsapi.PodStats, name string, of v1.ResourceName) (used int64, known bool) {
	if p == nil {
		return 0, false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name != name {
			continue
		}
		switch of {
		case v1.ResourceMemory:
			if c.Memory == nil || c.Memory.WorkingSetBytes == nil {
				return 0, false
			}
			return int64(*c.Memory.WorkingSetBytes), true
		case v1.ResourceEphemeralStorage:
			return sum(bytes, c.Rootfs, c.Logs), true
		case resourceInodes:
			return sum(inodes, c.Rootfs, c.Logs), true
		}
	}
	return 0, false
}

func sum(of func(*statsapi.FsStats) *uint64, all ...*statsapi.FsStats) (total int64) {
	for _, fs := range all {
		if fs != nil && of(fs) != nil {
			total += int64(*of(fs))
		}
	}
	return total
}
