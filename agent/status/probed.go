package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// Facts are what a pod's phase follows from.
type Facts struct {
	Observed cri.Pod
	// Waiting has, by container, why it does not run although it should. A container in it will be
	// started, whatever its last exit says; one that runs counts as one that does not yet.
	Waiting map[string]Reason
	// Probed has, by container id, what probes have found out of containers that run.
	Probed map[string]Probed
}

// Answer is what a probe has found out so far, as its thresholds have it.
type Answer int8

// The answers.
const (
	NoAnswer Answer = iota
	Passes
	Fails
)

// Probed is what its probes have found out of a container.
type Probed struct{ Startup, Liveness, Readiness Answer }

// probed says what follows from the probes of a container that runs. As long as one has no answer,
// what was told of the same run of the container counts, which is from before the agent was
// restarted; else that it has neither started nor is ready.
func (in Input) probed(c *v1.Container, id string) (started, ready bool) {
	found, was := in.Probed[id], v1.ContainerStatus{}
	if told := in.derived.was[c.Name]; told != nil && told.ContainerID == in.Node.Runtime+"://"+id {
		was = *told
	}
	started = answer(c.StartupProbe, found.Startup, ptr.Deref(was.Started, false))
	ready = answer(c.ReadinessProbe, found.Readiness, was.Ready)
	return started, started && ready
}

func answer(p *v1.Probe, found Answer, told bool) bool {
	return p == nil || found == Passes || found == NoAnswer && told
}
