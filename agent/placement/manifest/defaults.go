package manifest

import (
	"maps"
	"slices"
	"strings"

	resourcehelper "k8s.io/component-helpers/resource"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// Gates reports whether a feature gate is on; nil: none is.
type Gates func(gate string) bool

// On reports whether a gate is on; without gates none is.
func (g Gates) On(gate string) bool { return g != nil && g(gate) }

// SetDefaults sets the defaults of the API server that the node depends on.
func SetDefaults(pod *v1.Pod, gates Gates) {
	s := &pod.Spec
	unset(&s.RestartPolicy, v1.RestartPolicyAlways)
	unset(&s.DNSPolicy, v1.DNSClusterFirst)
	unset(&s.SchedulerName, v1.DefaultSchedulerName)
	unset(&s.TerminationGracePeriodSeconds, ptr.To(int64(v1.DefaultTerminationGracePeriodSeconds)))
	unset(&s.EnableServiceLinks, ptr.To(v1.DefaultEnableServiceLinks))
	unset(&s.SecurityContext, &v1.PodSecurityContext{})
	for c := range podspec.All(pod) {
		defaultContainer(c, s.HostNetwork)
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
	if s.Resources != nil {
		DefaultPodResources(pod, gates.On("PodLevelResourcesFixDefaulting"))
	}
	roundToMilli(s.Overhead)
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	unset(&c.ImagePullPolicy, pullPolicy(c.Image))
	unset(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	unset(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		p := &c.Ports[i]
		unset(&p.Protocol, v1.ProtocolTCP)
		if hostNetwork {
			unset(&p.HostPort, p.ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
		}
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			defaultProbe(p)
		}
	}
	if c.Lifecycle != nil {
		defaultHook(c.Lifecycle.PostStart)
		defaultHook(c.Lifecycle.PreStop)
	}
	r := &c.Resources
	roundToMilli(r.Limits)
	roundToMilli(r.Requests)
	r.Requests = fillFrom(r.Requests, r.Limits)
}

func defaultProbe(p *v1.Probe) {
	unset(&p.TimeoutSeconds, 1)
	unset(&p.PeriodSeconds, 10)
	unset(&p.SuccessThreshold, 1)
	unset(&p.FailureThreshold, 3)
	defaultGet(p.HTTPGet)
	if p.GRPC != nil {
		unset(&p.GRPC.Service, ptr.To(""))
	}
}

func defaultHook(h *v1.LifecycleHandler) {
	if h != nil {
		defaultGet(h.HTTPGet)
	}
}

func defaultGet(a *v1.HTTPGetAction) {
	if a != nil {
		unset(&a.Path, "/")
		unset(&a.Scheme, v1.URISchemeHTTP)
	}
}

// pullPolicy is Always for images that may change under the same name.
func pullPolicy(image string) v1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	if tag == "latest" || !tagged && !digest {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultVolume(v *v1.VolumeSource) {
	if *v == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		unset(&v.HostPath.Type, ptr.To(v1.HostPathUnset))
	}
	if v.Image != nil {
		unset(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.DownwardAPI != nil {
		unset(&v.DownwardAPI.DefaultMode, ptr.To(v1.DownwardAPIVolumeSourceDefaultMode))
		defaultItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		unset(&v.Projected.DefaultMode, ptr.To(v1.ProjectedVolumeSourceDefaultMode))
		for _, source := range v.Projected.Sources {
			if source.DownwardAPI != nil {
				defaultItems(source.DownwardAPI.Items)
			}
		}
	}
}

func defaultItems(items []v1.DownwardAPIVolumeFile) {
	for _, item := range items {
		defaultFieldRef(item.FieldRef)
	}
}

func defaultFieldRef(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		unset(&ref.APIVersion, "v1")
	}
}

// DefaultPodResources completes what is set for the pod as a whole: limits of huge pages by those of the
// containers, requests by those of the containers or else by the limits, and, if limits, the limits of
// what all containers have limits of. The containers have their defaults.
func DefaultPodResources(pod *v1.Pod, limits bool) {
	r := pod.Spec.Resources
	roundToMilli(r.Limits)
	roundToMilli(r.Requests)
	if len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	sum := supported(resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}))
	maps.DeleteFunc(sum, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, requested := r.Requests[name]
		return requested || !isHugePages(name)
	})
	if r.Limits = fillFrom(r.Limits, sum); len(r.Limits) == 0 && !limits {
		return
	}
	asked := supported(resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}))
	maps.DeleteFunc(asked, func(name v1.ResourceName, _ resource.Quantity) bool {
		return isHugePages(name) // never overcommitted, so the limit is the request
	})
	r.Requests = fillFrom(fillFrom(r.Requests, asked), supported(maps.Clone(r.Limits)))
	if limits {
		r.Limits = fillFrom(r.Limits, podLimits(pod))
	}
}

// podLimits returns limits of the pod by those of its containers, of what every container has a limit
// of: their sum, or what the pod requests if that is more.
func podLimits(pod *v1.Pod) v1.ResourceList {
	out := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for name, requested := range pod.Spec.Resources.Requests {
		if sum, has := out[name]; has && requested.Cmp(sum) > 0 {
			out[name] = requested
		}
	}
	maps.DeleteFunc(out, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, requested := pod.Spec.Resources.Requests[name]
		for c := range podspec.Containers(pod) {
			if _, limited := c.Resources.Limits[name]; !limited {
				return true
			}
		}
		return !requested
	})
	return supported(out)
}

// supported leaves what can be set for a pod as a whole.
func supported(list v1.ResourceList) v1.ResourceList {
	maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
		return !resourcehelper.IsSupportedPodLevelResource(name)
	})
	return list
}

// fillFrom adds entries of defaults that list lacks.
func fillFrom(list, defaults v1.ResourceList) v1.ResourceList {
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := list[name]; !ok {
			if list == nil {
				list = v1.ResourceList{}
			}
			list[name] = defaults[name].DeepCopy()
		}
	}
	return list
}

// roundToMilli rounds up to thousandths, the API's precision.
func roundToMilli(list v1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// unset sets the field to the default if it has its zero value.
func unset[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
