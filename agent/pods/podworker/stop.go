package podworker

import (
	"slices"
	"time"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// stopAll stops the containers, whose preStop hooks all run at the beginning, and then the
// sandboxes.
func (p *plan) stopAll() {
	p.d.Deadline = await.Earlier(p.memory.deadline, p.now.Add(p.grace()))
	if stop := p.stopInOrder(); len(stop.IDs) > 0 {
		if p.awaitsPublished() {
			return
		}
		stop.Grace = StopGrace(p.d.Deadline.Sub(p.now))
		p.proposeForPod(p.withHooks(stop, stop.IDs))
		return
	}
	var ready []string
	for _, s := range p.observed.Sandboxes {
		if s.Ready {
			ready = append(ready, s.ID)
		}
	}
	p.proposeForPod(Action{Kind: StopSandboxes, IDs: ready})
}

// telling is the longest time for which containers are not stopped so that others hear before that the
// pod is not ready any more; it is at most a quarter of the grace period, and a part of it.
const telling = time.Second

// awaitsPublished reports whether the status that says that the pod is not ready any more should be
// published first. That status follows from this decision.
func (p *plan) awaitsPublished() bool {
	if !p.tells || !p.Unready() || p.memory.end.stopping {
		return false
	}
	p.d.TellBy = await.Earlier(p.memory.tellBy, p.now.Add(min(telling, p.d.Deadline.Sub(p.now)/4)))
	if !p.now.Before(p.d.TellBy) || !p.memory.tellBy.IsZero() && p.published {
		return false
	}
	p.d.wakeAt(p.d.TellBy)
	return true
}

// StopGrace returns the time that one stop call gives if so much is left: whole seconds, as CRI
// requires.
func StopGrace(left time.Duration) time.Duration {
	return max((left + time.Second - 1).Truncate(time.Second), minStop)
}

// stopInOrder stops all containers that may run. Sidecars wait for the regular containers and then
// for each other, the last one first; all others are stopped at once. Nothing waits for an
// ephemeral container, or for an init container that was interrupted.
func (p *plan) stopInOrder() Action {
	kinds := map[string]podspec.Kind{}
	for c, kind := range podspec.All(p.Pod) {
		kinds[c.Name] = kind
	}
	stop := Action{Kind: StopContainers}
	var regular []string
	for _, c := range p.observed.Containers {
		kind := kinds[c.Name]
		if !maybeRunning(c) || kind == podspec.Sidecar {
			continue
		}
		stop.IDs = append(stop.IDs, c.ID)
		if kind == podspec.Regular {
			regular = append(regular, c.ID)
		}
	}
	order := [][]string{regular}
	inits := p.Pod.Spec.InitContainers
	for i := len(inits) - 1; i >= 0; i-- {
		if !podspec.IsSidecar(&inits[i]) {
			continue
		}
		var ids []string
		for _, c := range p.records[inits[i].Name] {
			if maybeRunning(c) {
				ids = append(ids, c.ID)
			}
		}
		order, stop.IDs = append(order, ids), append(stop.IDs, ids...)
	}
	order = slices.DeleteFunc(order, func(ids []string) bool { return len(ids) == 0 })
	if len(order) > 1 {
		stop.StopOrder = order
	}
	return stop
}
