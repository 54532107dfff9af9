package rig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology/podspec"
)

// ClaimSpec is a resource claim of a pod in mixes and traces.
type ClaimSpec struct {
	Name string `json:"name"`
	// Devices says how many devices of which class. A class has the name and the devices of a
	// resource of the site.
	Devices map[string]Text `json:"devices"`
	// Match, if set, is an attribute that all devices of the claim have in common.
	Match string `json:"match,omitempty"`
}

// attributes list what the devices of a claim may have in common; "": the device has no such
// attribute.
var attributes = map[string]func(claim.Place) string{
	"pcieRoot": func(at claim.Place) string { return at.Root },
	"numaNode": func(at claim.Place) string {
		if at.Nodes.IsEmpty() {
			return ""
		}
		return at.Nodes.String()
	},
}

// claims adds the claims to the pod, and returns them with full names and numbers. The pod's own
// spec.resourceClaims, if it has any, have to be among them.
func (s *Site) claims(pod *v1.Pod, specs []ClaimSpec) (out []ClaimSpec, err error) {
	names := map[string]bool{}
	for i, spec := range specs {
		if spec.Name == "" || names[spec.Name] {
			return nil, fmt.Errorf("claims[%d]: name %q is empty or there twice", i, spec.Name)
		}
		names[spec.Name] = true
		one, err := spec.resolved(s)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", spec.Name, err)
		}
		out = append(out, one)
	}
	for _, c := range pod.Spec.ResourceClaims {
		if !names[c.Name] {
			return nil, fmt.Errorf("nothing says which devices its claim %s has; write "+
				`"claims": [{"name": %[1]q, "devices": {"gpu": 1}}] beside it`, c.Name)
		}
	}
	pod.Spec.ResourceClaims = nil
	for _, spec := range out {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			v1.PodResourceClaim{Name: spec.Name, ResourceClaimName: &spec.Name})
	}
	for c := range podspec.Containers(pod) {
		for _, uses := range c.Resources.Claims {
			if !names[uses.Name] {
				return nil, fmt.Errorf("container %s uses claim %q, which the pod does not have", c.Name,
					uses.Name)
			}
		}
	}
	return out, nil
}

// resolved returns the claim with full names and numbers of devices.
func (c ClaimSpec) resolved(s *Site) (ClaimSpec, error) {
	out := ClaimSpec{Name: c.Name, Match: c.Match, Devices: map[string]Text{}}
	amounts, err := s.amounts(c.Devices)
	if err != nil {
		return out, fmt.Errorf("devices: %w", err)
	}
	total := int64(0)
	for name, q := range amounts {
		if isCounted(string(name)) || q.IsZero() {
			return out, fmt.Errorf("devices: %s of %s; a claim has devices, as gpu: 1", q.String(), name)
		}
		total += q.Value()
		out.Devices[string(name)] = Text(q.String())
	}
	if total == 0 || total > resourcev1.AllocationResultsMaxSize {
		return out, fmt.Errorf("%d devices; a claim has 1 to %d", total,
			resourcev1.AllocationResultsMaxSize)
	}
	if _, known := attributes[c.Match]; !known && c.Match != "" {
		return out, fmt.Errorf("match %q is none of %s", c.Match,
			strings.Join(slices.Sorted(maps.Keys(attributes)), ", "))
	}
	return out, nil
}

// counts returns how many devices of each class the claim has.
func (c ClaimSpec) counts() map[string]int64 {
	out := map[string]int64{}
	for class, text := range c.Devices {
		out[class], _ = strconv.ParseInt(string(text), 10, 64) // Site.claim wrote it
	}
	return out
}

// oneOwner refuses streams that ask for a resource both by claims and from its plugin: a device is
// handed out by one of them.
func (s Stream) oneOwner() error {
	claimed := map[string]string{}
	for _, shape := range s.Shapes {
		for _, c := range shape.Claims {
			for class := range c.Devices {
				claimed[class] = shape.Name
			}
		}
	}
	for _, shape := range s.Shapes {
		for name := range podspec.Requests(shape.Pod) {
			if by := claimed[string(name)]; by != "" {
				return fmt.Errorf("%s asks for %s by a claim, and %s in limits; a device is handed out by "+
					"a driver or by a device plugin", by, name, shape.Name)
			}
		}
	}
	return nil
}

// claims reports whether the container has devices of the class by a claim.
func (s Shape) claims(c *v1.Container, class string) bool {
	return slices.ContainsFunc(c.Resources.Claims, func(uses v1.ResourceClaim) bool {
		return slices.ContainsFunc(s.Claims, func(spec ClaimSpec) bool {
			return spec.Name == uses.Name && spec.Devices[class] != ""
		})
	})
}
