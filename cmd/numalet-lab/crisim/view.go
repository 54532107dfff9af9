package crisim

import (
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The store in CRI messages. Configurations are shared with the messages: neither side changes
// them.

func (s *contents) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	matching := func(sb *sandbox) bool { return matchSandbox(f, sb) }
	for _, sb := range oldest(s.sandboxes, matching) {
		out = append(out, &runtimeapi.PodSandbox{
			Id:             sb.id,
			Metadata:       sb.config.GetMetadata(),
			State:          sb.state(),
			CreatedAt:      sb.created,
			Labels:         sb.config.GetLabels(),
			Annotations:    sb.config.GetAnnotations(),
			RuntimeHandler: sb.handler,
		})
	}
	return out
}

func matchSandbox(f *runtimeapi.PodSandboxFilter, sb *sandbox) bool {
	return (f.GetId() == "" || f.GetId() == sb.id) &&
		(f.GetState() == nil || f.GetState().GetState() == sb.state()) &&
		matchLabels(f.GetLabelSelector(), sb.config.GetLabels())
}

func matchContainer(f *runtimeapi.ContainerFilter, c *container) bool {
	return (f.GetId() == "" || f.GetId() == c.id) &&
		(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox.id) &&
		(f.GetState() == nil || f.GetState().GetState() == c.life.state) &&
		matchLabels(f.GetLabelSelector(), c.config.GetLabels())
}

func matchLabels(selector, of map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(of))
}

func (sb *sandbox) state() runtimeapi.PodSandboxState {
	if sb.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *contents) sandboxStatus(sb *sandbox) *runtimeapi.PodSandboxStatusResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.PodSandboxStatusResponse{
		Status:             sb.statusLocked(),
		ContainersStatuses: statuses(s.inLocked(sb.id)),
		Timestamp:          s.clock.now(),
	}
}

func (sb *sandbox) statusLocked() *runtimeapi.PodSandboxStatus {
	options := sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return &runtimeapi.PodSandboxStatus{
		Id:        sb.id,
		Metadata:  sb.config.GetMetadata(),
		State:     sb.state(),
		CreatedAt: sb.created,
		Network:   &runtimeapi.PodSandboxNetworkStatus{Ip: sb.ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: options},
		},
		Labels:         sb.config.GetLabels(),
		Annotations:    sb.config.GetAnnotations(),
		RuntimeHandler: sb.handler,
	}
}

func statuses(containers []*container) []*runtimeapi.ContainerStatus {
	var out []*runtimeapi.ContainerStatus
	for _, c := range containers {
		out = append(out, c.statusLocked())
	}
	return out
}

func (s *contents) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*runtimeapi.Container
	matching := func(c *container) bool { return matchContainer(f, c) }
	for _, c := range oldest(s.containers, matching) {
		out = append(out, &runtimeapi.Container{
			Id:           c.id,
			PodSandboxId: c.sandbox.id,
			Metadata:     c.config.GetMetadata(),
			Image:        c.config.GetImage(),
			ImageRef:     c.imageRef,
			ImageId:      c.imageRef,
			State:        c.life.state,
			CreatedAt:    c.created,
			Labels:       c.config.GetLabels(),
			Annotations:  c.config.GetAnnotations(),
		})
	}
	return out
}

func (s *contents) containerStatus(c *container) *runtimeapi.ContainerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.statusLocked()
}

func (c *container) statusLocked() *runtimeapi.ContainerStatus {
	out := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		State:       c.life.state,
		CreatedAt:   c.created,
		StartedAt:   c.life.started,
		FinishedAt:  c.life.finished,
		ExitCode:    c.life.exit.Code,
		Image:       c.config.GetImage(),
		ImageRef:    c.imageRef,
		ImageId:     c.imageRef,
		Reason:      c.life.exit.Reason,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		Mounts:      c.config.GetMounts(),
		LogPath:     logPath(c),
		Resources:   &runtimeapi.ContainerResources{Linux: c.resources},
		StopSignal:  c.config.GetStopSignal(),
	}
	if user := c.config.GetLinux().GetSecurityContext().GetRunAsUser(); user != nil {
		group := c.config.GetLinux().GetSecurityContext().GetRunAsGroup().GetValue()
		out.User = &runtimeapi.ContainerUser{
			Linux: &runtimeapi.LinuxContainerUser{Uid: user.GetValue(), Gid: group},
		}
	}
	return out
}

// emitLocked sends an event to the listeners; pod is nil if the runtime no longer has it.
func (s *store) emitLocked(id string, pod *sandbox, what runtimeapi.ContainerEventType) {
	if !s.events.listened() {
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: what,
		CreatedAt:          time.Now().UnixNano(),
	}
	if pod != nil {
		e.PodSandboxStatus = pod.statusLocked()
		e.ContainersStatuses = statuses(s.inLocked(pod.id))
	}
	s.events.send(e)
}

// mergeResources implements UpdateContainerResources: fields that are not set keep their values.
func mergeResources(
	old, set *runtimeapi.LinuxContainerResources,
) *runtimeapi.LinuxContainerResources {
	merged := &runtimeapi.LinuxContainerResources{}
	proto.Merge(merged, old)
	if len(set.GetHugepageLimits()) > 0 {
		merged.HugepageLimits = nil // Merge would append
	}
	proto.Merge(merged, set)
	return merged
}
