package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Restarts reports whether a regular container that exited with code is started again: a matching
// rule of the container decides, alone or with all others, else its own policy, else the pod's
// (KEP-5307, KEP-5532).
func Restarts(pod *v1.Pod, c *v1.Container, code int32) bool {
	if rule(c, code) != "" {
		return true
	}
	switch policy(pod, c) {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// RestartsInit is Restarts for an init container: one that is not a sidecar runs until it succeeds,
// unless its policy is Never and no rule says otherwise.
func RestartsInit(pod *v1.Pod, c *v1.Container, exit cri.Exit) bool {
	switch {
	case podspec.IsSidecar(c):
		return true
	case InitSucceeded(exit):
		return false
	default:
		return rule(c, exit.Code) != "" || !NeverRestarts(pod, c)
	}
}

// reasonOOMKilled is what runtimes say of a container of which the kernel killed a process.
const reasonOOMKilled = "OOMKilled"

// InitSucceeded reports whether an init container's exit lets the pod go on. The exit code alone does
// not say so: if the kernel killed a child of it for want of memory, a shell may go on and exit with
// 0, and what it was to prepare is half made.
func InitSucceeded(exit cri.Exit) bool {
	return exit.Code == 0 && exit.Reason != reasonOOMKilled
}

// NeverRestarts reports whether the container's policy, or else the pod's, is Never. Rules may still
// say otherwise of an exit.
func NeverRestarts(pod *v1.Pod, c *v1.Container) bool {
	return policy(pod, c) == v1.ContainerRestartPolicyNever
}

func policy(pod *v1.Pod, c *v1.Container) v1.ContainerRestartPolicy {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy
	}
	return v1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
}

// rule is what the first of the container's rules that is about an exit with code asks for; "": none
// is.
func rule(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

// NextInit is the index of the init container that the pod still waits for: one that has not
// succeeded, or a sidecar that has not started. len(InitContainers) means all are through.
//
// Init containers start in order, so the last one that ran in the newest sandbox tells
// how far the pod came; earlier ones need no record any more, and a sidecar that crashes
// later does not set the pod back. Once a regular container was started, all are through.
func NextInit(pod *v1.Pod, f Facts) int {
	all, ran := len(pod.Spec.InitContainers), ranInSandbox(f.Observed)
	for i := range pod.Spec.Containers {
		if _, ok := ran[pod.Spec.Containers[i].Name]; ok {
			return all
		}
	}
	for i := all - 1; i >= 0; i-- {
		c := &pod.Spec.InitContainers[i]
		record, ok := ran[c.Name]
		switch {
		case !ok:
			continue
		case f.initThrough(c, record):
			return i + 1
		default:
			return i
		}
	}
	return 0
}

// Started has, by container, the newest record that was started.
type Started map[string]cri.Container

// Ran is what was started of a pod, in any sandbox.
func Ran(observed cri.Pod) Started {
	return started(observed, func(cri.Container) bool { return true })
}

// ranInSandbox is what was started in the pod's newest sandbox.
func ranInSandbox(observed cri.Pod) Started {
	return started(observed, func(c cri.Container) bool {
		return len(observed.Sandboxes) > 0 && c.SandboxID == observed.Sandboxes[0].ID
	})
}

func started(observed cri.Pod, counts func(cri.Container) bool) Started {
	out := Started{}
	for _, c := range slices.Backward(observed.Containers) {
		if c.State != cri.ContainerCreated && counts(c) {
			out[c.Name] = c
		}
	}
	return out
}

func (f Facts) initThrough(c *v1.Container, record cri.Container) bool {
	if podspec.IsSidecar(c) {
		_, waits := f.Waiting[c.Name]
		return record.State == cri.ContainerRunning && !waits &&
			(c.StartupProbe == nil || f.Probed[record.ID].Startup == Passes)
	}
	return record.State == cri.ContainerExited && InitSucceeded(record.Exit)
}
