package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// RestartsInit does the same for an init container: one that is not a sidecar runs until it
// succeeds, unless its policy is Never and no rule matches.
func RestartsInit(pod *v1.Pod, c *v1.Container, exit cri.Exit) bool {
	switch {
	case podspec.IsSidecar(c):
		return true
	case InitSucceeded(exit):
		return false
	default:
		return podspec.RestartRule(c, exit.Code) != "" || !podspec.NeverRestarts(pod, c)
	}
}

// reasonOOMKilled is the runtimes' reason for a container with a process that the kernel killed.
const reasonOOMKilled = "OOMKilled"

// InitSucceeded reports whether the pod can go on after an init container's exit. An exit code of 0
// is not enough: if the kernel killed a child for lack of memory, a shell may still exit with 0,
// and its work is half done.
func InitSucceeded(exit cri.Exit) bool {
	return exit.Code == 0 && exit.Reason != reasonOOMKilled
}

// NextInit returns the index of the init container that the pod waits for: one that has not
// succeeded, or a sidecar that has not started. len(InitContainers) means that all are through.
//
// Init containers start in order, so the last one that ran in the newest sandbox shows how far the
// pod came. Earlier ones need no record, and a sidecar that crashes later does not set the pod
// back. Once a regular container was started, all are through.
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

// Started maps containers to their newest record that was started.
type Started map[string]cri.Container

// Ran returns the started containers of a pod in all sandboxes.
func Ran(observed cri.Pod) Started {
	return started(observed, func(cri.Container) bool { return true })
}

// ranInSandbox returns the started containers in the pod's newest sandbox.
func ranInSandbox(observed cri.Pod) Started {
	return started(observed, func(c cri.Container) bool {
		return len(observed.Sandboxes) > 0 && c.SandboxID == observed.Sandboxes[0].ID
	})
}

func started(observed cri.Pod, counts func(cri.Container) bool) Started {
	out := Started{}
	for _, c := range slices.Backward(observed.Containers) {
		if !c.Unstarted() && counts(c) {
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
