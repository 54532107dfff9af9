package cri

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and annotations that identify our sandboxes and containers in the runtime. They are the
// kubelet's, so that either agent can adopt what the other started.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	// AnnotationRoot is our own: the root directory of the agent that made a sandbox.
	AnnotationRoot = "numalet.io/root-dir"

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationContainerPorts           = "io.kubernetes.container.ports"
	AnnotationPodDeletionGrace         = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationPodTerminationGrace      = "io.kubernetes.pod.terminationGracePeriod"
)

// Pod is what the runtime reports about one pod: facts, nothing that was decided. It is an
// immutable snapshot; treat slices and maps in it as read-only.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	// Sandboxes and Containers are ordered newest first.
	Sandboxes  []Sandbox
	Containers []Container
	// ReadAt is when the runtime was asked.
	ReadAt time.Time
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	HostNetwork bool
	IPs         []string
	CreatedAt   time.Time
	Annotations map[string]string
	Handler     string // the runtime handler that it was made with; "": the default one
}

// ContainerState is the runtime's state of a container.
type ContainerState string

// The states that CRI knows.
const (
	ContainerCreated ContainerState = "Created"
	ContainerRunning ContainerState = "Running"
	ContainerExited  ContainerState = "Exited"
	ContainerUnknown ContainerState = "Unknown"
)

// Container is one container, an attempt at running a container of the pod's spec.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	State     ContainerState
	// Attempt is the restart count this container was created with.
	Attempt     uint32
	CreatedAt   time.Time
	StartedAt   time.Time // zero: never started
	From        Origin
	Exit        Exit
	Applied     Applied
	Annotations map[string]string
}

// Origin is what a container was made from.
type Origin struct {
	// Hash is the container spec's hash annotation.
	Hash  string
	Image string // as the user wrote it
	// ImageRef is the runtime's resolved reference (a digest).
	ImageRef string
	LogPath  string
}

// Exit is how a container ended.
type Exit struct {
	At      time.Time // zero: has not exited
	Code    int32
	Reason  string // "Completed", "Error", "OOMKilled", ...
	Message string
}

// Applied is what the runtime says that a container runs with. Zero: it does not tell, or none is
// set.
type Applied struct {
	CPUs, Mems string // cpuset.cpus and cpuset.mems, in kernel list syntax
	// Shares, and Quota microseconds in each Period, are the CPU controller's.
	Shares, Quota, Period int64
	Memory                int64 // the limit in bytes
	User                  *v1.LinuxContainerUser
}

// Running reports whether any container of the pod runs, or any sandbox is ready.
func (p Pod) Running() bool {
	return slices.ContainsFunc(p.Containers,
		func(c Container) bool { return c.State == ContainerRunning }) ||
		slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool { return s.Ready })
}

// Reference is the pod as its labels name it, without a spec.
func (p Pod) Reference() *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = p.UID, p.Namespace, p.Name
	return pod
}

// Records are the containers by name, newest first: for those who look at all of them, where a
// search for each would cost their number squared.
func (p Pod) Records() map[string][]Container {
	out := map[string][]Container{}
	for _, c := range p.Containers {
		out[c.Name] = append(out[c.Name], c)
	}
	return out
}

// Container is the newest container of that name.
func (p Pod) Container(name string) (Container, bool) {
	return find(p.Containers, func(c Container) bool { return c.Name == name })
}

// ContainerOf is the container with that id.
func (p Pod) ContainerOf(id string) (Container, bool) {
	return find(p.Containers, func(c Container) bool { return c.ID == id })
}

func find[T any](all []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return found, false
}
