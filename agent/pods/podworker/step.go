package podworker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// minGrace is the shortest grace period of a pod.
	minGrace = time.Second
	// minStop is the shortest time that one stop call gives, even when the grace period is over: a
	// container may react to its signal at once.
	minStop = 2 * time.Second
)

// input holds everything that a step depends on.
type input struct {
	Desired
	// behind is the pod of the same name that must end first; empty: there is none.
	behind   types.UID
	observed cri.Pod
	// probed holds the results of the containers' probes by container id.
	probed map[string]status.Probed
	// failed says, by container id, why a container has to be stopped whatever its probes say.
	failed map[string]string
	// had holds the resources of the running pod when the agent started; nil: unknown.
	had     *podspec.Resources
	now     time.Time
	memory  *memory // read only
	backOff BackOff
	// retention says which records stay.
	retention Retention
	// holds: the pod holds resource claims.
	holds bool
	// lost says why nothing of the pod that runs may stay; "": it may.
	lost string
	// due is the time from which the volumes are to be updated; zero: not now.
	due time.Time
	// tells: the pod's statuses are published. published: the newest one is.
	tells, published bool
}

// step decides on the next action for a pod, if any.
func step(in input) Decision {
	p := &plan{input: in, records: in.observed.Records()}
	p.d.State, p.d.Holds = in.state(), in.holds
	switch p.d.State {
	case SyncPod:
		p.sync()
	case TerminatingPod:
		p.stopAll()
		p.tellFailures()
	case TerminatedPod:
		p.dispose()
		p.tellFailures()
	case Finished:
		// Nothing is left to do.
	}
	return p.d
}

func (in input) state() State {
	switch {
	case in.Stop == nil && !in.ended():
		return SyncPod
	case alive(in.observed):
		return TerminatingPod
	case !in.memory.end.cleaned || in.remove() && recorded(in.observed):
		return TerminatedPod
	default:
		return Finished
	}
}

// remove reports whether nothing of the pod should stay.
func (d Desired) remove() bool { return d.Stop != nil && d.Stop.Remove }

// ended reports whether the pod ended by itself.
func (in input) ended() bool {
	return in.memory.completed || podspec.Ended(in.Pod.Status.Phase) ||
		podspec.Ended(status.Phase(in.Pod, in.facts()))
}

func (in input) facts() status.Facts {
	return status.Facts{
		Observed: in.observed, Waiting: in.memory.waiting(in.observed), Probed: in.probed,
	}
}

// grace returns how long the containers would have if they were stopped now.
func (in input) grace() time.Duration {
	if in.Stop == nil {
		return max(Grace(in.Pod), minGrace)
	}
	return in.Stop.grace()
}

// plan is a decision in the making. The first action that may be taken becomes the decision's;
// later proposals only leave their reasons for waiting.
type plan struct {
	input
	records map[string][]cri.Container // by name, newest first
	d       Decision
}

// propose takes the action, unless one was taken or this one failed too recently. It returns a
// remembered failure either way.
func (p *plan) propose(a Action) (failure, bool) {
	f, failed := p.memory.failures[a.key()]
	switch {
	case failed && f.retry.After(p.now):
		p.d.wakeAt(f.retry)
	case p.d.Action == nil:
		p.d.Action = &a
	}
	return f, failed
}

// proposeForPod is propose for an action whose failure is a problem of the whole pod.
func (p *plan) proposeForPod(a Action) {
	if f, failed := p.propose(a); failed {
		p.d.Problem = f.why
	}
}

// tellFailures reports, until the end of the pod, why a container was never started.
func (p *plan) tellFailures() {
	for c := range podspec.Containers(p.Pod) {
		f, failed := p.memory.failures[key{StartContainer, c.Name}]
		if failed && len(p.records[c.Name]) == 0 {
			p.d.waits(c.Name, f.why)
		}
	}
}

func (d *Decision) wakeAt(t time.Time) { d.Wake = await.Earlier(d.Wake, t) }

// sinceMade returns the wait before a container, or the sandbox (""), may be made again.
func (in input) sinceMade(name string) pause {
	made := in.memory.made[name]
	return pause{since: made.last, delay: in.backOff.delay(made.count, 1)}
}

func (d *Decision) waits(container string, why status.Reason) {
	if d.Waiting == nil {
		d.Waiting = map[string]status.Reason{}
	}
	d.Waiting[container] = why
}

// dispose releases what a stopped pod holds. A sandbox that died by itself keeps its address and
// ports until it is stopped. Drivers give up the devices of its resource claims before anything is
// removed, and before the pod is reported to have ended. The runtime's records are removed last: as long as they exist, the pod
// is found again after a crash.
func (p *plan) dispose() {
	if !p.memory.end.cleaned {
		if p.sandboxDied() {
			p.proposeForPod(Action{Kind: StopSandboxes, IDs: []string{p.memory.end.unstopped}})
			return
		}
		if p.holds {
			p.proposeForPod(Action{Kind: ReleaseClaims})
			return
		}
		p.proposeForPod(Action{Kind: CleanUp})
		return
	}
	p.proposeForPod(Action{Kind: RemovePod})
}

// sandboxDied reports whether the newest sandbox ended without being stopped. Older ones were
// stopped before it was made.
func (in input) sandboxDied() bool {
	return len(in.observed.Sandboxes) > 0 && in.observed.Sandboxes[0].ID == in.memory.end.unstopped
}

// alive reports whether a container of the pod runs or a sandbox is ready.
func alive(observed cri.Pod) bool {
	return observed.Running() || slices.ContainsFunc(observed.Containers, maybeRunning)
}

// maybeRunning reports whether a container may run. In an unknown state it is stopped before
// anything else.
func maybeRunning(c cri.Container) bool {
	return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
}

func recorded(observed cri.Pod) bool {
	return len(observed.Sandboxes) > 0 || len(observed.Containers) > 0
}
