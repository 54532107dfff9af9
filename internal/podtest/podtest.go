// Package podtest makes pods and resource lists for tests.
package podtest

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// An Option changes a pod that New makes. Tests may write their own.
type Option = func(*v1.Pod)

// New returns a pod whose UID equals its name. "shop/web" is the pod web of the namespace shop;
// without a namespace it is of "default". A nil option changes nothing.
func New(name string, options ...Option) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name = "default", name
	if namespace, name, found := strings.Cut(name, "/"); found {
		p.Namespace, p.Name = namespace, name
	}
	p.UID = types.UID(p.Name)
	for _, option := range options {
		if option != nil {
			option(p)
		}
	}
	return p
}

// UID sets the pod's UID.
func UID[T ~string](uid T) Option { return func(p *v1.Pod) { p.UID = types.UID(uid) } }

// Phase sets the phase of the pod's status.
func Phase(phase v1.PodPhase) Option { return func(p *v1.Pod) { p.Status.Phase = phase } }

// Priority sets the pod's priority.
func Priority(n int32) Option { return func(p *v1.Pod) { p.Spec.Priority = &n } }

// Spec replaces the pod's spec; options that add to it come later.
func Spec(spec v1.PodSpec) Option { return func(p *v1.Pod) { p.Spec = spec } }

// Resources sets the pod-level resources, as Requirements reads them.
func Resources(text string) Option {
	return func(p *v1.Pod) { p.Spec.Resources = ptr.To(Requirements(text)) }
}

// Source says where the pod comes from: "api", or "file" for a static pod.
func Source(source string) Option { return Annotations("kubernetes.io/config.source", source) }

// Annotations adds annotations; keys and values alternate.
func Annotations(pairs ...string) Option {
	return func(p *v1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// Containers adds containers, each from a text for Container. A name that ends in "!" makes an init
// container, in "~" a sidecar, in "?" an ephemeral container.
func Containers(texts ...string) Option {
	return func(p *v1.Pod) {
		for _, text := range texts {
			name, amounts, _ := strings.Cut(text, " ")
			c := Container(strings.TrimRight(name, "!~?") + " " + amounts)
			switch name[len(name)-1] {
			case '~':
				c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
				fallthrough
			case '!':
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			case '?':
				p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
					EphemeralContainerCommon: v1.EphemeralContainerCommon(c)})
			default:
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}
	}
}

// Guaranteed adds containers as Containers does, each with 1 GiB of memory unless its text says
// another amount.
func Guaranteed(texts ...string) Option {
	return func(p *v1.Pod) {
		for _, text := range texts {
			name, amounts, _ := strings.Cut(text, " ")
			Containers(name + " memory=1Gi " + amounts)(p)
		}
	}
}

// Line adds what a line such as "Always first side~ | web db" says: the restart policy, init
// containers and sidecars, a bar, other containers. Without a bar there are only these.
func Line(line string) Option {
	return func(p *v1.Pod) {
		policy, names, _ := strings.Cut(line, " ")
		p.Spec.RestartPolicy = v1.RestartPolicy(policy)
		inits, regular, found := strings.Cut(names, "|")
		if !found {
			inits, regular = "", names
		}
		for name := range strings.FieldsSeq(inits) {
			if !strings.HasSuffix(name, "~") {
				name += "!"
			}
			Containers(name)(p)
		}
		Containers(strings.Fields(regular)...)(p)
	}
}

// Mounts adds volumes, and has the first container mount each at "/" and its name.
func Mounts(volumes ...v1.Volume) Option {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, volumes...)
		c := &p.Spec.Containers[0]
		for _, v := range volumes {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
		}
	}
}

// Claims adds resource claims, each from a text such as "gpu=gpu-1" (the pod's name for it, the
// claim's), and has the first container use them: of "gpu/one=gpu-1" only the request "one".
func Claims(texts ...string) Option {
	return func(p *v1.Pod) {
		r := &p.Spec.Containers[0].Resources
		for _, text := range texts {
			use, claim, _ := strings.Cut(text, "=")
			name, request, _ := strings.Cut(use, "/")
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				v1.PodResourceClaim{Name: name, ResourceClaimName: &claim})
			r.Claims = append(r.Claims, v1.ResourceClaim{Name: name, Request: request})
		}
	}
}

// Container returns a container of a text such as "main cpu=2 memory=1Gi gpu=1": its name, then its
// resources, as Requirements reads them.
func Container(text string) v1.Container {
	name, amounts, _ := strings.Cut(text, " ")
	return v1.Container{Name: name, Resources: Requirements(amounts)}
}

// Requirements returns what a text such as "cpu=2 memory=1Gi..2Gi gpu=..1" requests and limits:
// "1Gi..2Gi" requests 1Gi and limits to 2Gi, and either may be absent; an amount alone is both.
// Names of resources are read as by Amounts, and of two amounts the last counts.
func Requirements(text string) (r v1.ResourceRequirements) {
	set := func(list *v1.ResourceList, name v1.ResourceName, amount string) {
		delete(*list, name)
		if amount != "" {
			if *list == nil {
				*list = v1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(amount)
		}
	}
	for word := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(word, "=")
		request, limit, ranged := strings.Cut(amount, "..")
		if !ranged {
			limit = request
		}
		set(&r.Requests, fullName(name), request)
		set(&r.Limits, fullName(name), limit)
	}
	return r
}

var native = regexp.MustCompile(`/|^(cpu|memory|pods|pid|ephemeral-storage|(hugepages|attachable)-.*)$`)

// Amounts returns a text such as "cpu=2 memory=1Gi gpu=1" as a resource list; of two amounts of a
// resource the last counts. A name without a domain that is none of Kubernetes' own gets
// example.com.
func Amounts(text string) v1.ResourceList {
	list := v1.ResourceList{}
	for word := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(word, "=")
		list[fullName(name)] = resource.MustParse(amount)
	}
	return list
}

func fullName(resource string) v1.ResourceName {
	if !native.MatchString(resource) {
		resource = "example.com/" + resource
	}
	return v1.ResourceName(resource)
}

// Brings adds a resource claim that these containers use and that brings amounts: mapping to all of
// them together, and overhead for the pod and for each container (DRANodeAllocatableResources).
func Brings(containers []string, mapping, perPod, perContainer string) Option {
	return func(p *v1.Pod) {
		s := v1.NodeAllocatableResourceClaimStatus{Containers: containers,
			ResourceClaimName: fmt.Sprintf("claim-%d", len(p.Status.NodeAllocatableResourceClaimStatuses))}
		for name, q := range Amounts(mapping) {
			s.Mapping = append(s.Mapping, v1.NodeAllocatableMappedResources{Name: name, Quantity: &q})
		}
		for name, q := range Amounts(perPod) {
			s.Overhead = append(s.Overhead, v1.NodeAllocatableOverheadResources{Name: name, PerPod: &q})
		}
		for name, q := range Amounts(perContainer) {
			s.Overhead = append(s.Overhead,
				v1.NodeAllocatableOverheadResources{Name: name, PerContainer: &q})
		}
		p.Status.NodeAllocatableResourceClaimStatuses = append(
			p.Status.NodeAllocatableResourceClaimStatuses, s)
	}
}
