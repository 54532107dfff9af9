package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// Facts holds what a pod's phase depends on.
type Facts struct {
	Observed cri.Pod
	// Waiting says, by container, why it does not run although it should. Such a container will be
	// started, whatever its last exit; if it runs, it counts as not started yet.
	Waiting map[string]Reason
	// Probed holds, by container id, the results of probes of running containers.
	Probed map[string]Probed
}

// Answer is the present result of a probe, after its thresholds.
type Answer int8

// The possible answers.
const (
	NoAnswer Answer = iota
	Passes
	Fails
)

// Probed holds the results of a container's probes.
type Probed struct{ Startup, Liveness, Readiness Answer }

// probed returns whether a running container has started and is ready. While a probe has no answer,
// the previous status of the same run counts, which is from before a restart of the agent; without
// one the answer is no.
func (in Input) probed(c *v1.Container, id string) (started, ready bool) {
	found, was := in.Probed[id], v1.ContainerStatus{}
	if before := in.derived.was[c.Name]; before != nil && before.ContainerID == in.Node.Runtime+"://"+id {
		was = *before
	}
	started = answer(c.StartupProbe, found.Startup, ptr.Deref(was.Started, false))
	ready = answer(c.ReadinessProbe, found.Readiness, was.Ready)
	return started, started && ready
}

func answer(p *v1.Probe, found Answer, before bool) bool {
	return p == nil || found == Passes || found == NoAnswer && before
}
