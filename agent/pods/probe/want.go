package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/topology/podspec"
)

// want is a wanted probe of a running container.
type want struct {
	spec   *v1.Probe
	target handler.Target
	since  time.Time // when the container started
	// open is set if it may be asked now, which depends on whether the container has started.
	open, started bool
	// canWait is set if the next answer is not urgent: the container is ready, or counts as alive.
	canWait bool
}

// wanted returns the probes of the pod's running containers.
func wanted(pod *v1.Pod, s v1.PodStatus, ending bool) map[key]want {
	out := map[key]want{}
	statuses := podspec.ByContainer(&s)
	for c, kind := range podspec.Containers(pod) {
		now := statuses[c.Name]
		if now == nil || now.State.Running == nil || kind == podspec.Init {
			continue
		}
		started := ptr.Deref(now.Started, false)
		for kind, spec := range specs(c) {
			if spec == nil || ending && kind != Readiness {
				continue
			}
			out[key{c.Name, kind}] = want{
				spec: spec, target: handler.Target{
					Container: c, ID: podspec.RuntimeID(now.ContainerID), IP: s.PodIP},
				since: now.State.Running.StartedAt.Time,
				open:  started != (kind == Startup), started: started,
				canWait: kind == Liveness || kind == Readiness && now.Ready,
			}
		}
	}
	return out
}
