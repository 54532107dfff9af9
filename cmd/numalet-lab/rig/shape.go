package rig

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Shape describes what pods of one kind ask for. Pod is never written to; it uses the Claims, which
// have full names of classes and numbers.
type Shape struct {
	Name   string
	Pod    *v1.Pod
	Claims []ClaimSpec
}

// PodSpec is a pod in mixes and traces: only what it and its containers ask for. Resources may be
// written without a domain ("gpu").
type PodSpec struct {
	// Annotations ask for a placement, as a pod's do.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Resources are asked for by the pod as a whole; nil: only its containers ask.
	Resources      *PodResources   `json:"resources,omitempty"`
	InitContainers []ContainerSpec `json:"initContainers,omitempty"`
	Containers     []ContainerSpec `json:"containers,omitempty"`
	Claims         []ClaimSpec     `json:"claims,omitempty"`
}

// ContainerSpec is one container. As in a pod, a missing request defaults to the limit. Amounts are
// quantities, or percentages of what the largest NUMA node has ("50%").
type ContainerSpec struct {
	Limits   map[string]Text `json:"limits,omitempty"`
	Requests map[string]Text `json:"requests,omitempty"`
	// Claims are the claims of the pod that it uses.
	Claims []string `json:"claims,omitempty"`
	// RestartPolicy Always makes an init container a sidecar.
	RestartPolicy string `json:"restartPolicy,omitempty"`
}

// Text is the text of a JSON string or number.
type Text string

// UnmarshalJSON reads both.
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		text, err := strconv.Unquote(string(data))
		*t = Text(text)
		return err
	}
	if _, err := strconv.ParseFloat(string(data), 64); err != nil {
		return fmt.Errorf("%s is neither a string nor a number", data)
	}
	*t = Text(data)
	return nil
}

// shape builds the pod of the spec for this site.
func (s *Site) shape(name string, spec PodSpec) (Shape, error) {
	if len(spec.Containers) == 0 {
		return Shape{}, errors.New(
			"it has no containers; write containers: [{limits: {cpu: 4, memory: 8Gi}}]")
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", name, "rig"
	pod.Annotations = spec.Annotations
	if err := checkAnnotations(pod); err != nil {
		return Shape{}, err
	}
	for i, c := range spec.InitContainers {
		made, err := s.container(fmt.Sprintf("init-%d", i), c)
		if err != nil {
			return Shape{}, fmt.Errorf("initContainers[%d]: %w", i, err)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, made)
	}
	for i, c := range spec.Containers {
		made, err := s.container(fmt.Sprintf("main-%d", i), c)
		if err != nil {
			return Shape{}, fmt.Errorf("containers[%d]: %w", i, err)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, made)
	}
	if err := s.whole(pod, spec.Resources); err != nil {
		return Shape{}, fmt.Errorf("resources: %w", err)
	}
	claims, err := s.claims(pod, spec.Claims)
	return Shape{Name: name, Pod: pod, Claims: claims}, err
}

// checkAnnotations refuses annotations that have no meaning here. A choice that a policy forbids
// pods is no error: the policy's own then applies.
func checkAnnotations(pod *v1.Pod) error {
	known := podspec.PlacementAnnotations(pod)
	for _, name := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("annotations: %q asks for nothing here; only those for placement do, "+
				"with a value", name)
		}
	}
	_, err := podspec.Rules(pod, topology.Rules{Choices: topology.None.Strict()})
	return err
}

func (s *Site) container(name string, spec ContainerSpec) (v1.Container, error) {
	c := v1.Container{Name: name}
	var err error
	if c.Resources, err = s.requirements(spec.Limits, spec.Requests); err != nil {
		return c, err
	}
	for _, name := range spec.Claims {
		c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: name})
	}
	switch policy := v1.ContainerRestartPolicy(spec.RestartPolicy); policy {
	case "":
	case v1.ContainerRestartPolicyAlways:
		c.RestartPolicy = &policy
	default:
		return c, fmt.Errorf("restartPolicy %q: only Always has a meaning here", spec.RestartPolicy)
	}
	err = complete(&c.Resources)
	return c, err
}

func (s *Site) requirements(limits, requests map[string]Text) (r v1.ResourceRequirements, err error) {
	if r.Limits, err = s.amounts(limits); err != nil {
		return r, fmt.Errorf("limits: %w", err)
	}
	if r.Requests, err = s.amounts(requests); err != nil {
		return r, fmt.Errorf("requests: %w", err)
	}
	return r, nil
}

// complete sets missing requests to the limits, and refuses requests above their limits.
func complete(r *v1.ResourceRequirements) error {
	if len(r.Limits) > 0 && r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit
		}
	}
	return checkLimits(*r)
}

// checkLimits refuses requests above their limits.
func checkLimits(r v1.ResourceRequirements) error {
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limit, request := r.Limits[name], r.Requests[name]
		if request.Cmp(limit) > 0 {
			return fmt.Errorf("the request of %s, %s, is more than the limit, %s",
				name, request.String(), limit.String())
		}
	}
	return nil
}

func (s *Site) amounts(given map[string]Text) (v1.ResourceList, error) {
	if len(given) == 0 {
		return nil, nil
	}
	out := v1.ResourceList{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name := s.Resource(key)
		q, err := s.amount(name, string(given[key]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out[v1.ResourceName(name)] = q
	}
	return out, nil
}

func (s *Site) amount(name, text string) (resource.Quantity, error) {
	percent, relative := strings.CutSuffix(text, "%")
	if !relative {
		q, err := quantity.Parse(text)
		switch {
		case err != nil:
			return q, fmt.Errorf("%q is no amount; write 4, 500m, 8Gi or 50%%", text)
		case q.Sign() < 0:
			return q, fmt.Errorf("%s is negative", text)
		case !isCounted(name) && q.Value()*1000 != q.MilliValue():
			return q, fmt.Errorf("%s: devices come as a whole", text)
		}
		return q, nil
	}
	share, err := strconv.ParseFloat(percent, 64)
	if err != nil || share <= 0 || share > 10000 {
		return resource.Quantity{}, fmt.Errorf("%q is no share of a node; write it like 50%%", text)
	}
	return s.share(name, share/100), nil
}

// share returns a part of what the largest node has, in whole cores, pages or devices and at least
// one; memory in MiB.
func (s *Site) share(name string, part float64) resource.Quantity {
	whole, unit, format := float64(s.perNode(name)), int64(1), resource.BinarySI
	switch {
	case name == string(v1.ResourceCPU):
		unit, format = int64(s.Machine.ThreadsPerCore()), resource.DecimalSI
		whole /= 1000
	case name == string(v1.ResourceMemory):
		unit = 1 << 20
	case strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
		if size, ok := quantity.PageSize(v1.ResourceName(name)); ok {
			unit = size
		}
	default:
		format = resource.DecimalSI
	}
	n := max(1, int64(math.Round(whole*part/float64(unit))))
	return *resource.NewQuantity(n*unit, format)
}

// demands returns what the shape's pods hold while they run, by resource: millicores, bytes,
// devices.
func (s Shape) demands() map[string]int64 {
	out := map[string]int64{}
	for name, q := range podspec.Requests(s.Pod) {
		if name != v1.ResourcePods {
			out[string(name)] = amountOf(name, q)
		}
	}
	for _, c := range s.Claims {
		for class, n := range c.counts() {
			out[class] += n
		}
	}
	return out
}
