package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Reason explains a state: a word for programs and a sentence for people.
type Reason struct {
	Reason, Message string
}

// Phase returns the pod's phase, computed from its containers.
//
// A failed init container that may not restart fails the pod. The pod is Pending while init
// containers are not through or a regular container has never run, then Running. It ends when no
// regular container runs and none will restart. Sidecars do not keep it from ending.
func Phase(pod *v1.Pod, f Facts) v1.PodPhase {
	next, observed := NextInit(pod, f), f.Observed
	again := RestartAll(pod, observed).Len() > 0
	count, ran := map[fate]int{}, Ran(observed)
	for i := range pod.Spec.Containers {
		count[ran.fateOf(pod, &pod.Spec.Containers[i], f.Waiting)]++
	}
	// If all regular containers stay stopped, perhaps since an earlier sandbox, no init container is
	// needed and no sidecar is started again.
	over := count[neverRan] == 0 && count[runs] == 0 && !again
	if next < len(pod.Spec.InitContainers) && !over {
		if !again && (initFailed(pod, f, next) || outlived(pod, observed)) {
			return v1.PodFailed
		}
		return v1.PodPending
	}
	switch {
	case count[neverRan] > 0 && !again && outlived(pod, observed):
		return v1.PodFailed
	case count[neverRan] > 0:
		return v1.PodPending
	case count[runs] > 0, again:
		return v1.PodRunning
	case count[failed] > 0:
		return v1.PodFailed
	default:
		return v1.PodSucceeded
	}
}

// fate says what happened to a container, and what will happen.
type fate int

const (
	neverRan  fate = iota
	runs           // now, or again soon
	succeeded      // and stays stopped
	failed         // and stays stopped
)

func (s Started) fateOf(pod *v1.Pod, c *v1.Container, waiting map[string]Reason) fate {
	record, ok := s[c.Name]
	if !ok {
		return neverRan
	}
	_, again := waiting[c.Name]
	if again && record.State == cri.ContainerRunning && record.Attempt == 0 {
		return neverRan // its postStart hook has not succeeded
	}
	if record.State != cri.ContainerExited {
		return runs
	}
	if again || podspec.Restarts(pod, c, record.Exit.Code) {
		return runs
	}
	if record.Exit.Code == 0 {
		return succeeded
	}
	return failed
}

func initFailed(pod *v1.Pod, f Facts, next int) bool {
	c := &pod.Spec.InitContainers[next]
	record, ok := ranInSandbox(f.Observed)[c.Name]
	if !ok || record.State != cri.ContainerExited {
		return false
	}
	_, again := f.Waiting[c.Name]
	return !again && !RestartsInit(pod, c, record.Exit)
}

// outlived reports whether the pod's sandbox is gone for good: containers that have not run by now
// never will.
func outlived(pod *v1.Pod, observed cri.Pod) bool {
	return SandboxProblem(pod, observed) != "" && !MayRemakeSandbox(pod, observed)
}

// MayRemakeSandbox reports whether a pod that lost its sandbox gets another. A pod whose containers
// never restart gets none once it had a container, which a new sandbox would run again.
func MayRemakeSandbox(pod *v1.Pod, observed cri.Pod) bool {
	if len(observed.Sandboxes) == 0 || len(observed.Containers) == 0 {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		return podspec.Restarts(pod, &c, 1)
	})
}

// SandboxProblem says in the kubelet's words why the pod's containers need a new sandbox; "" if the
// sandbox can be used.
func SandboxProblem(pod *v1.Pod, observed cri.Pod) string {
	if len(observed.Sandboxes) == 0 {
		return "no pod sandbox exists"
	}
	ready := 0
	for _, s := range observed.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	newest := observed.Sandboxes[0]
	switch {
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled"
	case !newest.Ready:
		return "pod sandbox is not ready"
	case newest.HostNetwork != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated"
	case !newest.HostNetwork && len(newest.IPs) == 0:
		return "pod sandbox has no IP address"
	default:
		return ""
	}
}
