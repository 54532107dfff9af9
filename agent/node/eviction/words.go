package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// The kubelet's reasons of events.
const (
	ReasonEvicted      = podspec.ReasonEvicted
	ReasonThresholdMet = "EvictionThresholdMet" // on the node
)

// The annotations of the event of an evicted pod, the kubelet's.
const (
	annotationStarved         = "starved_resource"
	annotationContainers      = "offending_containers"
	annotationContainersUsage = "offending_containers_usage"
	// Of a pod with requests of its own for memory (pod-level resources).
	annotationPod      = "offending_pod"
	annotationPodUsage = "offending_pod_usage"
)

// Words say why a pod is evicted.
type Words struct {
	Message     string
	Annotations map[string]string // of the event
}

// wordsOf says in the kubelet's words why the pod is evicted, and what it holds that no file shows. If nothing is known of its use, that is
// all, and there are no annotations.
func wordsOf(c *Candidate, t *Threshold, r Reading) Words {
	name := t.Signal.Resource()
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", name)
	fmt.Fprintf(&b, "Threshold quantity: %s, available: %s. ",
		amount(name, t.of(r.Capacity, false)), amount(name, r.Available))
	if c.Stats == nil {
		return Words{Message: b.String()}
	}
	larger := func(what, who, usage string, request resource.Quantity) {
		fmt.Fprintf(&b, "%s %s was using %s, request is %s, has larger consumption of %v. ", what, who,
			usage, request.String(), name)
	}
	words := Words{Annotations: map[string]string{annotationStarved: string(name)}}
	if request, usage, set := podMemory(c, name); set {
		larger("Pod", c.Pod.Name, usage, request)
		words.Annotations[annotationPod] = c.Pod.Name
		words.Annotations[annotationPodUsage] = usage
	}
	var names, usages []string
	for container, kind := range podspec.All(c.Pod) {
		used, known := containerUse(c.Stats, container.Name, name)
		request := container.Resources.Requests[name]
		if !known || kind == podspec.Ephemeral || used <= request.Value() {
			continue // an ephemeral container cannot request anything
		}
		usage := amount(name, used)
		larger("Container", container.Name, usage, request)
		names, usages = append(names, container.Name), append(usages, usage)
	}
	if held := c.Node.Bytes + c.Layers.Bytes; t.Signal.OnDisk() && held > 0 {
		// No container's use has them: it was chosen for what none of the kubelet's words say.
		fmt.Fprintf(&b, "The pod holds deleted files of %s. ", rounded(v1.ResourceEphemeralStorage, held))
	}
	words.Annotations[annotationContainers] = strings.Join(names, ",")
	words.Annotations[annotationContainersUsage] = strings.Join(usages, ",")
	words.Message = b.String()
	return words
}

// podMemory returns the memory that the pod itself requests, whether it uses more or not, and uses; set
// is false if it requests none, or something else is short.
func podMemory(c *Candidate, short v1.ResourceName) (request resource.Quantity, usage string, set bool) {
	if c.Pod.Spec.Resources == nil || short != v1.ResourceMemory || c.Stats.Memory == nil {
		return request, "", false
	}
	request, set = c.Pod.Spec.Resources.Requests[short]
	return request, amount(short, int64(ptr.Deref(c.Stats.Memory.WorkingSetBytes, 0))), set
}

// amount writes an amount of a resource: bytes with binary units, a count without.
func amount(name v1.ResourceName, value int64) string {
	format := resource.BinarySI
	if name == resourceInodes || name == resourcePIDs {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(value, format).String()
}

// containerUse counts what a container uses of the resource by itself; known is false where that is
// not measured.
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
			return sum(bytes, c.Rootfs, c.Logs), c.Rootfs != nil && c.Rootfs.UsedBytes != nil &&
				c.Logs != nil && c.Logs.UsedBytes != nil
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
