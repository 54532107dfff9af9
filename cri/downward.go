package cri

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// Facts holds what the downward API tells a container about its node
// (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/).
type Facts struct {
	NodeName string
	// HostIPs and PodIPs start with the primary address.
	HostIPs, PodIPs []string
	// Allocatable replaces limits that a container does not set.
	Allocatable v1.ResourceList
}

// Fields has the values of a pod's fields for its containers. Pods ask for thousands: each costs only
// its own work, and one that takes much is made once.
type Fields struct {
	Facts
	pod  *v1.Pod
	made map[string]string
}

// Of returns the fields of a pod, for one goroutine.
func (f Facts) Of(pod *v1.Pod) *Fields { return &Fields{f, pod, map[string]string{}} }

// Field returns the value of a fieldRef.
func (f *Fields) Field(ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("fieldRef: apiVersion %q is not v1", ref.APIVersion)
	}
	if text, is := f.made[ref.FieldPath]; is {
		return text, nil
	}
	text, err := f.field(f.pod, ref)
	if err == nil && (ref.FieldPath == labelsField || ref.FieldPath == annotationsField) {
		f.made[ref.FieldPath] = text
	}
	return text, err
}

// Fields that are maps.
const labelsField, annotationsField = "metadata.labels", "metadata.annotations"

func (f Facts) field(pod *v1.Pod, ref *v1.ObjectFieldSelector) (string, error) {
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case labelsField:
		return formatMap(pod.Labels), nil
	case annotationsField:
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return f.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return cmp.Or(f.HostIPs...), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return cmp.Or(f.podIPs(pod)...), nil
	case "status.podIPs":
		return strings.Join(f.podIPs(pod), ","), nil
	}
	if key, ok := subscript(ref.FieldPath, labelsField); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(ref.FieldPath, annotationsField); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldRef: field path %q is not one a variable can have", ref.FieldPath)
}

// podIPs returns the pod's addresses, or the host's for a pod in the host's network.
func (f Facts) podIPs(pod *v1.Pod) []string {
	if pod.Spec.HostNetwork && len(f.PodIPs) == 0 {
		return f.HostIPs
	}
	return f.PodIPs
}

// subscript returns the KEY of a path of the form base['KEY'].
func subscript(path, base string) (string, bool) {
	rest, ok := strings.CutPrefix(path, base+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// formatMap writes one key="value" line per entry, keys ascending.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns the value of a resourceFieldRef: the quantity divided by the divisor, rounded
// up.
func (f Facts) Resource(
	pod *v1.Pod, container *v1.Container, ref *v1.ResourceFieldSelector,
) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != container.Name {
		if container, _ = podspec.Find(pod, ref.ContainerName); container == nil {
			return "", fmt.Errorf("resourceFieldRef: the pod has no container %q",
				ref.ContainerName)
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	quantity := container.Resources.Requests[v1.ResourceName(name)]
	switch {
	case !readable(v1.ResourceName(name)) || kind != "requests" && kind != "limits":
		return "", fmt.Errorf("resourceFieldRef: resource %q is not one a variable can have: "+
			"use limits or requests of cpu, memory, ephemeral-storage or hugepages-SIZE",
			ref.Resource)
	case kind == "limits":
		quantity = f.limit(pod, container, v1.ResourceName(name))
	}
	if name == string(v1.ResourceCPU) {
		return divide(quantity.MilliValue(), ref.Divisor, (*resource.Quantity).MilliValue)
	}
	return divide(quantity.Value(), ref.Divisor, (*resource.Quantity).Value)
}

func readable(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory ||
		name == v1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// limit returns the container's limit, else the pod's, else the node's allocatable quantity.
func (f Facts) limit(
	pod *v1.Pod, container *v1.Container, name v1.ResourceName,
) resource.Quantity {
	if q := container.Resources.Limits[name]; !q.IsZero() {
		return q
	}
	if pod.Spec.Resources != nil {
		if q := pod.Spec.Resources.Limits[name]; !q.IsZero() {
			return q
		}
	}
	return f.Allocatable[name]
}

// divide returns value/divisor, rounded up. unit converts the divisor to the unit of value. A
// divisor of zero counts as 1.
func divide(
	value int64, divisor resource.Quantity, unit func(*resource.Quantity) int64,
) (string, error) {
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	by := unit(&divisor)
	if by <= 0 {
		return "", fmt.Errorf("resourceFieldRef: divisor %s is not positive", divisor.String())
	}
	whole := value / by
	if value%by > 0 {
		whole++
	}
	return strconv.FormatInt(whole, 10), nil
}
