package cri

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/internal/oneline"
)

// Pods lists every pod that carries the pod UID label, ordered by UID, with two calls for any
// number of pods. It fills in ids, names, attempts, states and creation times. Pod also reads exit
// codes, other times, IPs and CPU sets.
func (c *Client) Pods(ctx context.Context) ([]Pod, error) {
	l, err := c.list(ctx, nil)
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]*Pod{}
	at := func(labels map[string]string) *Pod {
		uid := types.UID(labels[LabelPodUID])
		if uid == "" {
			return nil
		}
		p, ok := pods[uid]
		if !ok {
			p = &Pod{UID: uid, ReadAt: l.readAt}
			pods[uid] = p
		}
		p.name(labels)
		return p
	}
	for _, s := range l.sandboxes {
		if p := at(s.GetLabels()); p != nil {
			p.Sandboxes = append(p.Sandboxes, fromListedSandbox(s))
		}
	}
	for _, ctr := range l.containers {
		if p := at(ctr.GetLabels()); p != nil {
			p.Containers = append(p.Containers, fromListedContainer(ctr))
		}
	}
	out := make([]Pod, 0, len(pods))
	for _, p := range pods {
		p.sort()
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	return out, nil
}

// Pod reads one pod in full. If the runtime does not have it, the result is a Pod without sandboxes
// and containers, not an error.
func (c *Client) Pod(ctx context.Context, uid types.UID) (Pod, error) {
	return c.Refresh(ctx, Pod{UID: uid})
}

// Refresh reads the pod last.UID in full. It takes from last what cannot have changed: exited
// containers, and sandboxes whose readiness has not changed.
func (c *Client) Refresh(ctx context.Context, last Pod) (Pod, error) {
	ctx = quiet(ctx)
	l, err := c.list(ctx, map[string]string{LabelPodUID: string(last.UID)})
	if err != nil {
		return Pod{}, fmt.Errorf("read pod %s: %w", last.UID, err)
	}
	pod := Pod{UID: last.UID, Namespace: last.Namespace, Name: last.Name, ReadAt: l.readAt}
	for _, s := range l.sandboxes {
		pod.name(s.GetLabels())
		if known, ok := last.sandbox(fromListedSandbox(s)); ok {
			pod.Sandboxes = append(pod.Sandboxes, known)
			continue
		}
		if err := c.readSandbox(ctx, &pod, s.GetId()); err != nil {
			return Pod{}, err
		}
	}
	for _, ctr := range l.containers {
		pod.name(ctr.GetLabels())
		if err := c.readContainer(ctx, &pod, last, ctr.GetId(), ctr.GetPodSandboxId()); err != nil {
			return Pod{}, err
		}
	}
	pod.sort()
	return pod, nil
}

// readContainer adds a container to the pod. It takes an exited container from last.
func (c *Client) readContainer(ctx context.Context, pod *Pod, last Pod, id, sandbox string) error {
	if known, final := last.exited(id); final {
		pod.Containers = append(pod.Containers, known)
		return nil
	}
	resp, err := c.runtime.ContainerStatus(ctx, id, false)
	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s: container %s: %w", last.UID, id, err)
	}
	full := fromContainerStatus(resp.GetStatus())
	full.SandboxID = sandbox
	pod.Containers = append(pod.Containers, full)
	return nil
}

// Made holds the ids of what an action has just created in the runtime: a sandbox, or a container and
// its sandbox. It is empty if the action created nothing.
type Made struct{ Sandbox, Container string }

// Recheck reads by id the containers of last that had not exited, and those in made. It takes
// everything else from last and misses other changes in the runtime.
func (c *Client) Recheck(ctx context.Context, last Pod, made Made) (Pod, error) {
	ctx = quiet(ctx)
	pod := last
	pod.ReadAt, pod.Sandboxes, pod.Containers = time.Now(), slices.Clone(last.Sandboxes), nil
	containers := slices.Clone(last.Containers)
	if _, known := last.ContainerOf(made.Container); made.Container != "" && !known {
		containers = append(containers, Container{ID: made.Container, SandboxID: made.Sandbox})
	}
	var both errgroup.Group
	both.Go(func() error { return c.recheckSandbox(ctx, &pod, made.Sandbox) })
	inside := Pod{UID: last.UID}
	both.Go(func() error {
		for _, was := range containers {
			if err := c.readContainer(ctx, &inside, last, was.ID, was.SandboxID); err != nil {
				return err
			}
		}
		return nil
	})
	if err := both.Wait(); err != nil {
		return Pod{}, err
	}
	pod.Containers = inside.Containers
	pod.sort()
	return pod, nil
}

// recheckSandbox reads one of the pod's sandboxes again, or adds it; with "" it does nothing.
func (c *Client) recheckSandbox(ctx context.Context, pod *Pod, id string) error {
	if id == "" {
		return nil
	}
	pod.Sandboxes = slices.DeleteFunc(pod.Sandboxes, func(s Sandbox) bool { return s.ID == id })
	return c.readSandbox(ctx, pod, id)
}

// readSandbox adds a sandbox to the pod unless it is gone.
func (c *Client) readSandbox(ctx context.Context, pod *Pod, id string) error {
	resp, err := c.runtime.PodSandboxStatus(ctx, id, false)
	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s: sandbox %s: %w", pod.UID, id, err)
	}
	pod.name(resp.GetStatus().GetLabels())
	pod.Sandboxes = append(pod.Sandboxes, fromSandboxStatus(resp.GetStatus()))
	return nil
}

// listing holds the runtime's answers to one pair of list calls.
type listing struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	// readAt is before the first call: the answers cover everything that had happened by then.
	readAt time.Time
}

func (c *Client) list(ctx context.Context, labels map[string]string) (listing, error) {
	ctx = quiet(ctx)
	l := listing{readAt: time.Now()}
	var err error
	l.sandboxes, err = c.runtime.ListPodSandbox(ctx,
		&runtimeapi.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return listing{}, fmt.Errorf("list sandboxes: %w", err)
	}
	l.containers, err = c.runtime.ListContainers(ctx,
		&runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return listing{}, fmt.Errorf("list containers: %w", err)
	}
	if c.foreign != nil {
		l.leaveOut(c.foreign)
	}
	return l, nil
}

// leaveOut drops the sandboxes of other agents, and their containers.
func (l *listing) leaveOut(foreign func(annotations map[string]string) bool) {
	others := sets.New[string]()
	l.sandboxes = slices.DeleteFunc(l.sandboxes, func(s *runtimeapi.PodSandbox) bool {
		if !foreign(s.GetAnnotations()) {
			return false
		}
		others.Insert(s.GetId())
		return true
	})
	l.containers = slices.DeleteFunc(l.containers, func(ctr *runtimeapi.Container) bool {
		return others.Has(ctr.GetPodSandboxId())
	})
}

func fromListedSandbox(s *runtimeapi.PodSandbox) Sandbox {
	return Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: fromNanos(s.GetCreatedAt()),

		Annotations: s.GetAnnotations(),
		Handler:     s.GetRuntimeHandler(),
	}
}

func fromSandboxStatus(s *runtimeapi.PodSandboxStatus) Sandbox {
	out := Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: fromNanos(s.GetCreatedAt()),

		Annotations: s.GetAnnotations(),
		Handler:     s.GetRuntimeHandler(),
	}
	// If the option message is nil, the network mode reads as POD, the zero value.
	network := s.GetLinux().GetNamespaces().GetOptions().GetNetwork()
	out.HostNetwork = network == runtimeapi.NamespaceMode_NODE
	out.IDs = fromUserNamespace(s.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions())
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		out.IPs = append(out.IPs, ip.GetIp())
	}
	return out
}

func fromListedContainer(c *runtimeapi.Container) Container {
	return Container{
		ID:        c.GetId(),
		Name:      containerName(c.GetMetadata(), c.GetLabels()),
		SandboxID: c.GetPodSandboxId(),
		State:     containerState(c.GetState()),
		Attempt:   c.GetMetadata().GetAttempt(),
		From: Origin{
			Hash: c.GetAnnotations()[AnnotationHash], Image: imageName(c.GetImage()),
			ImageRef: c.GetImageRef(),
		},
		CreatedAt:   fromNanos(c.GetCreatedAt()),
		Annotations: c.GetAnnotations(),
	}
}

func fromContainerStatus(c *runtimeapi.ContainerStatus) Container {
	return Container{
		ID:      c.GetId(),
		Name:    containerName(c.GetMetadata(), c.GetLabels()),
		State:   containerState(c.GetState()),
		Attempt: c.GetMetadata().GetAttempt(),
		From: Origin{
			Hash: c.GetAnnotations()[AnnotationHash], Image: imageName(c.GetImage()),
			ImageRef: c.GetImageRef(), LogPath: c.GetLogPath(),
		},
		CreatedAt: fromNanos(c.GetCreatedAt()),
		StartedAt: fromNanos(c.GetStartedAt()),
		Exit: Exit{
			At: fromNanos(c.GetFinishedAt()), Code: c.GetExitCode(),
			Reason: oneline.Of(c.GetReason()), Message: oneline.Of(c.GetMessage()),
		},
		Applied:     applied(c),
		Annotations: c.GetAnnotations(),
	}
}

func applied(c *runtimeapi.ContainerStatus) Applied {
	linux := c.GetResources().GetLinux()
	out := Applied{
		CPUs: linux.GetCpusetCpus(), Mems: linux.GetCpusetMems(),
		Shares: linux.GetCpuShares(), Quota: linux.GetCpuQuota(), Period: linux.GetCpuPeriod(),
		Memory: linux.GetMemoryLimitInBytes(),
	}
	for _, m := range c.GetMounts() {
		if image := m.GetImage().GetImage(); image != "" {
			if out.Images == nil {
				out.Images = map[string]string{}
			}
			out.Images[m.GetContainerPath()] = image
		}
	}
	if user := c.GetUser().GetLinux(); user != nil {
		out.User = &v1.LinuxContainerUser{
			UID: user.GetUid(), GID: user.GetGid(),
			SupplementalGroups: user.GetSupplementalGroups(),
		}
	}
	return out
}

func containerName(m *runtimeapi.ContainerMetadata, labels map[string]string) string {
	return cmp.Or(labels[LabelContainerName], m.GetName())
}

func imageName(s *runtimeapi.ImageSpec) string {
	return cmp.Or(s.GetUserSpecifiedImage(), s.GetImage())
}

var containerStates = map[runtimeapi.ContainerState]ContainerState{
	runtimeapi.ContainerState_CONTAINER_CREATED: ContainerCreated,
	runtimeapi.ContainerState_CONTAINER_RUNNING: ContainerRunning,
	runtimeapi.ContainerState_CONTAINER_EXITED:  ContainerExited,
}

func containerState(s runtimeapi.ContainerState) ContainerState {
	return cmp.Or(containerStates[s], ContainerUnknown)
}

// fromNanos converts CRI's time, which is zero or nanoseconds since the epoch.
func fromNanos(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// name sets the pod's name from a sandbox's or container's labels.
func (p *Pod) name(labels map[string]string) {
	p.Namespace = cmp.Or(labels[LabelPodNamespace], p.Namespace)
	p.Name = cmp.Or(labels[LabelPodName], p.Name)
}

// sandbox returns the listed sandbox from p, if p has it with the same readiness.
func (p Pod) sandbox(listed Sandbox) (Sandbox, bool) {
	return find(p.Sandboxes,
		func(s Sandbox) bool { return s.ID == listed.ID && s.Ready == listed.Ready })
}

// exited returns the container with that id if p has it as exited.
func (p Pod) exited(id string) (Container, bool) {
	c, known := p.ContainerOf(id)
	return c, known && c.State == ContainerExited && !c.Exit.At.IsZero()
}

// sort puts the newest first. The order is total, so that equal facts compare equal. It starts with
// the attempt number, which grows even if the machine's clock is set back.
func (p *Pod) sort() {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt),
			cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt),
			cmp.Compare(a.ID, b.ID))
	})
}
