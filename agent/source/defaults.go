package source

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// setDefaults sets the defaults of the API server that the node depends on.
func setDefaults(pod *v1.Pod) {
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
		defaultPodResources(s)
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

// defaultPodResources sets missing pod-level requests for pod-level limits: the sum over the
// containers, or the limit if no container requests the resource.
func defaultPodResources(s *v1.PodSpec) {
	r := s.Resources
	roundToMilli(r.Limits)
	roundToMilli(r.Requests)
	sum := v1.ResourceList{}
	for _, c := range s.Containers {
		for name, q := range c.Resources.Requests {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	maps.DeleteFunc(sum, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, limited := r.Limits[name]
		return !limited
	})
	r.Requests = fillFrom(fillFrom(r.Requests, sum), r.Limits)
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
