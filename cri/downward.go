package cri

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// Facts are what the downward API tells a container about the place it runs at
// (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/).
type Facts struct {
	NodeName string
	// HostIPs and PodIPs have the primary address first.
	HostIPs, PodIPs []string
	// Allocatable stands in for limits that a container does not set.
	Allocatable v1.ResourceList
}

// Field is the value of a fieldRef. Only what is asked for is made: pods ask thousands of times.
func (f Facts) Field(pod *v1.Pod, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("fieldRef: apiVersion %q is not v1", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return f.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return first(f.podIPs(pod)), nil
	case "status.podIPs":
		return strings.Join(f.podIPs(pod), ","), nil
	}
	if key, ok := subscript(ref.FieldPath, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(ref.FieldPath, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldRef: field path %q is not one a variable can have", ref.FieldPath)
}

// podIPs are the pod's addresses; in the host's network they are the host's.
func (f Facts) podIPs(pod *v1.Pod) []string {
	if pod.Spec.HostNetwork && len(f.PodIPs) == 0 {
		return f.HostIPs
	}
	return f.PodIPs
}

// subscript is KEY of a path of the form base['KEY'].
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

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Resource is the value of a resourceFieldRef: the quantity over the divisor, rounded up.
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

// limit is the container's limit, else the pod's, else what the node can give.
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

// divide rounds value/divisor up; unit reads the divisor in the unit of value. No divisor is 1.
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
