package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// ErrNotCreated: the control plane has not made a claim of a template yet.
var ErrNotCreated = errors.New("ResourceClaim not created yet")

// errUnsupported: an entry of spec.resourceClaims has neither a name nor a template.
var errUnsupported = errors.New("none of the supported fields are set")

// Ref is a ResourceClaim that a pod refers to, in the pod's namespace.
type Ref struct {
	// Pod is the claim's name in spec.resourceClaims; "": the claim is that of extended resources.
	Pod string
	// Name is the name of the ResourceClaim.
	Name string
	// Owned: the claim was made for this pod, which must be its owner.
	Owned bool
}

// Any reports whether the pod uses claims.
func Any(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Refs returns the pod's claims in the order of its spec, then that of its extended resources. An
// entry for which the control plane decided to make no claim is left out.
func Refs(pod *v1.Pod) ([]Ref, error) {
	var out []Ref
	for i := range pod.Spec.ResourceClaims {
		ref, err := RefOf(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if ref.Name != "" {
			out = append(out, ref)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		out = append(out, Ref{Name: s.ResourceClaimName})
	}
	return out, nil
}

// RefOf returns what an entry refers to; without a name, no claim was made.
func RefOf(pod *v1.Pod, c *v1.PodResourceClaim) (Ref, error) {
	switch {
	case c.ResourceClaimName != nil:
		return Ref{Pod: c.Name, Name: *c.ResourceClaimName}, nil
	case c.ResourceClaimTemplateName != nil:
		for _, made := range pod.Status.ResourceClaimStatuses {
			switch {
			case made.Name != c.Name:
			case made.ResourceClaimName == nil:
				return Ref{}, nil
			default:
				return Ref{Pod: c.Name, Name: *made.ResourceClaimName, Owned: true}, nil
			}
		}
		return Ref{}, fmt.Errorf(`pod "%s/%s": %w`, pod.Namespace, pod.Name, ErrNotCreated)
	default:
		return Ref{}, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: %w`, pod.Namespace, pod.Name,
			c.Name, errUnsupported)
	}
}

// Part names what a container gets of a claim.
type Part struct {
	Ref
	// Request is a request of the claim; "": all of them.
	Request string
}

// Parts returns what the container of that name gets of the pod's claims, in the order of Refs.
// Ephemeral containers may use the pod's claims too.
func Parts(pod *v1.Pod, container string) ([]Part, error) {
	if !Any(pod) {
		return nil, nil
	}
	c, _ := podspec.Find(pod, container)
	if c == nil {
		return nil, nil
	}
	return PartsOf(pod, c)
}

// PartsOf returns Parts of a container of the pod.
func PartsOf(pod *v1.Pod, c *v1.Container) ([]Part, error) {
	var out []Part
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		for _, asked := range c.Resources.Claims {
			if asked.Name != entry.Name {
				continue
			}
			ref, err := RefOf(pod, entry)
			if err != nil {
				return nil, err
			}
			if ref.Name != "" {
				out = append(out, Part{ref, asked.Request})
			}
		}
	}
	return append(out, extendedParts(pod, c)...), nil
}

// extendedParts returns the requests for the container's extended resources.
func extendedParts(pod *v1.Pod, c *v1.Container) (out []Part) {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil {
		return nil
	}
	for _, m := range s.RequestMappings {
		asked := c.Resources.Requests[v1.ResourceName(m.ResourceName)]
		if m.ContainerName == c.Name && !asked.IsZero() {
			out = append(out, Part{Ref{Name: s.ResourceClaimName}, m.RequestName})
		}
	}
	return out
}

// ExtendedResource returns the extended resource of a container that a request of the pod's claim for
// extended resources stands for; "": there is none.
func ExtendedResource(pod *v1.Pod, container, request string) string {
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			if m.ContainerName == container && m.RequestName == request {
				return m.ResourceName
			}
		}
	}
	return ""
}

// Gets reports whether the part contains a device that a driver prepared for these requests; none:
// for all of the claim's.
func (p Part) Gets(requests []string) bool {
	return p.Request == "" || len(requests) == 0 || slices.Contains(requests, p.Request)
}

// Of returns the allocated devices that the part is about.
func (p Part) Of(devices []Device) (out []Device) {
	for _, d := range devices {
		if main, _, _ := strings.Cut(d.Request, "/"); p.Request == "" || p.Request == main {
			out = append(out, d)
		}
	}
	return out
}
