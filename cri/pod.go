package cri

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and annotations that identify our sandboxes and containers in the runtime. They are the
// kubelet's, so that each agent can adopt what the other started.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	// AnnotationRoot is our own: the root directory of the agent that created a sandbox.
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

// Pod holds the facts that the runtime reports about one pod. It is an immutable snapshot; treat
// its slices and maps as read-only.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	// Sandboxes and Containers are ordered newest first.
	Sandboxes  []Sandbox
	Containers []Container
	// ReadAt is the time at which the runtime was asked.
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
	Handler     string // the runtime handler it was created with; "": the default
	// IDs are those of its user namespace; zero: the host's. Pods does not fill it in.
	IDs IDs
}

// ContainerState is the runtime's state of a container.
type ContainerState string

// The container states of CRI.
const (
	ContainerCreated ContainerState = "Created"
	ContainerRunning ContainerState = "Running"
	ContainerExited  ContainerState = "Exited"
	ContainerUnknown ContainerState = "Unknown"
)

// Container is one attempt at running a container of the pod's spec.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	State     ContainerState
	// Attempt is the restart count with which this container was created.
	Attempt     uint32
	CreatedAt   time.Time
	StartedAt   time.Time // zero: never started
	From        Origin
	Exit        Exit
	Applied     Applied
	Annotations map[string]string
}

// Unstarted reports whether the container never ran, though it may be able to: the agent that was about to
// start it went away before the call or during it. containerd gives up a start when its caller goes.
func (c Container) Unstarted() bool {
	return c.State == ContainerCreated || c.State == ContainerExited && c.StartedAt.IsZero() &&
		c.Exit.Reason == "StartError" && strings.Contains(c.Exit.Message, context.Canceled.Error())
}

// Origin holds what a container was created from.
type Origin struct {
	// Hash is the container spec's hash annotation.
	Hash  string
	Image string // as the user wrote it
	// ImageRef is the runtime's resolved reference (a digest).
	ImageRef string
	LogPath  string
}

// Exit tells how a container ended.
type Exit struct {
	At      time.Time // zero: it has not exited
	Code    int32
	Reason  string // "Completed", "Error", "OOMKilled", ...
	Message string
}

// Applied holds the settings that the runtime reports for a container. Zero values are not set or
// not reported.
type Applied struct {
	CPUs, Mems string // cpuset.cpus and cpuset.mems, in kernel list syntax
	// Shares, Quota and Period belong to the CPU controller; Quota and Period are in microseconds.
	Shares, Quota, Period int64
	Memory                int64 // the limit in bytes
	User                  *v1.LinuxContainerUser
	// Images has the runtime's names of the images that are mounted as volumes, by mount path.
	Images map[string]string
}

// Running reports whether any container of the pod runs, or any sandbox is ready.
func (p Pod) Running() bool {
	return slices.ContainsFunc(p.Containers,
		func(c Container) bool { return c.State == ContainerRunning }) ||
		slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool { return s.Ready })
}

// Reference returns a pod with the name, namespace and UID from the labels, and no spec.
func (p Pod) Reference() *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = p.UID, p.Namespace, p.Name
	return pod
}

// Records returns the containers by name, newest first. Callers that look at all of them would need
// quadratic time with Container.
func (p Pod) Records() map[string][]Container {
	out := map[string][]Container{}
	for _, c := range p.Containers {
		out[c.Name] = append(out[c.Name], c)
	}
	return out
}

// Container returns the newest container of that name.
func (p Pod) Container(name string) (Container, bool) {
	return find(p.Containers, func(c Container) bool { return c.Name == name })
}

// ContainerOf returns the container with that id.
func (p Pod) ContainerOf(id string) (Container, bool) {
	return find(p.Containers, func(c Container) bool { return c.ID == id })
}

func find[T any](all []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return found, false
}
