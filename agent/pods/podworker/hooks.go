package podworker

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// hooks remembers the hooks of a pod's containers. pending survives a restart of the agent; a
// preStop hook that was running then runs again.
type hooks struct {
	// pending holds, by container, the attempt whose postStart hook has not succeeded. Until then
	// the container does not count as running, and nothing is started after it.
	pending map[string]uint32
	// failed holds the entries of pending whose hook failed: these containers are stopped.
	failed map[string]uint32
	// begun holds the ids of containers whose preStop hook was started.
	begun map[string]bool
}

func newHooks(pending map[string]uint32) hooks {
	h := hooks{pending: map[string]uint32{}, failed: map[string]uint32{}, begun: map[string]bool{}}
	maps.Copy(h.pending, pending)
	return h
}

// started records that an action is about to be carried out.
func (h hooks) started(pod *v1.Pod, a Action) {
	for _, id := range a.Hooks {
		h.begun[id] = true
	}
	if a.Kind != StartContainer {
		return
	}
	delete(h.pending, a.Container)
	delete(h.failed, a.Container)
	if postStart(pod, a.Container) != nil {
		h.pending[a.Container] = a.Attempt
	}
}

// ended records the result of a postStart hook.
func (h hooks) ended(container string, err error) {
	if err == nil {
		delete(h.pending, container)
	} else {
		h.failed[container] = h.pending[container]
	}
}

// waits reports whether the hook of a running container has not succeeded; fails, whether it never
// will.
func (h hooks) waits(c cri.Container) (waits, fails bool) {
	attempt, pends := h.pending[c.Name]
	failed, fails := h.failed[c.Name]
	waits = pends && attempt == c.Attempt && c.State == cri.ContainerRunning
	return waits, waits && fails && failed == c.Attempt
}

func postStart(pod *v1.Pod, container string) *v1.LifecycleHandler {
	if c, _ := podspec.Find(pod, container); c != nil && c.Lifecycle != nil {
		return c.Lifecycle.PostStart
	}
	return nil
}

// awaitHook runs the postStart hook of a started container, or stops the container if the hook
// failed. It reports whether there is a hook to wait for.
func (p *plan) awaitHook(c *v1.Container, record cri.Container) bool {
	waits, fails := p.memory.hooks.waits(record)
	if !waits {
		return false
	}
	hook := Action{Kind: PostStart, Container: c.Name, IDs: []string{record.ID}}
	p.d.waits(c.Name, p.memory.failures[hook.key()].why)
	if !fails {
		p.propose(hook)
		return true
	}
	p.propose(p.withHooks(Action{
		Kind: StopContainers, Container: c.Name, IDs: hook.IDs, Grace: StopGrace(p.grace()),
		Message: "FailedPostStartHook",
	}, hook.IDs))
	return true
}

// withHooks adds to a stop the preStop hooks that the containers still have to run.
func (in input) withHooks(stop Action, ids []string) Action {
	of := map[string]bool{}
	for _, id := range ids {
		of[id] = true
	}
	for _, c := range in.observed.Containers {
		if !of[c.ID] || c.State != cri.ContainerRunning || in.memory.hooks.begun[c.ID] {
			continue
		}
		if _, hook := cri.PreStop(in.Pod, c); hook != nil {
			stop.Hooks = append(stop.Hooks, c.ID)
		}
	}
	return stop
}

// awaited adds to waiting the running containers whose hook has not succeeded.
func (h hooks) awaited(observed cri.Pod, waiting map[string]status.Reason) {
	for _, c := range observed.Containers {
		if waits, _ := h.waits(c); waits {
			waiting[c.Name] = status.Reason{}
		}
	}
}
