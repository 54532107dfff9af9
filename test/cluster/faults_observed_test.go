package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/assigned"
)

// These labels of the runtime's sandboxes and containers identify them.
const (
	labelUID  = "io.kubernetes.pod.uid"
	labelName = "io.kubernetes.container.name"
)

// observed is what everybody reports of the node's pods at about the same time.
type observed struct {
	// api has the pods of the node in the API server, and here those of the agent, by name.
	api, here map[types.NamespacedName]v1.Pod
	places    map[string]assigned.Row                       // by "pod/container"
	reported  map[string]*podresourcesv1.ContainerResources // likewise
	held      allocation.State
	sandboxes []*runtimeapi.PodSandbox
	// containers has the runtime's containers, by the pod's UID and their name, the newest last.
	containers map[types.UID]map[string][]*runtimeapi.ContainerStatus
	addresses  map[types.UID]string // of the pods' ready sandboxes
	// left has directories, mounts and cgroups, by the UID of their pod.
	left map[types.UID]string
}

// look asks everybody.
func (s *faulty) look() (*observed, error) {
	ctx := context.Background()
	out := &observed{api: map[types.NamespacedName]v1.Pod{}, here: map[types.NamespacedName]v1.Pod{}}
	for _, step := range []func(context.Context, *observed) error{
		s.lookHere, s.lookAtRuntime, s.lookAtAPI, s.lookForLeft,
	} {
		if err := step(ctx, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func (s *faulty) lookAtAPI(ctx context.Context, out *observed) error {
	list, err := s.c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", s.node.Name).String(),
	})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		out.api[nameOf(&p)] = p
	}
	return nil
}

func (s *faulty) lookHere(ctx context.Context, out *observed) (err error) {
	pods, err := s.node.Pods()
	if err != nil {
		return err
	}
	for _, p := range pods {
		out.here[nameOf(&p)] = p
	}
	if out.places, err = s.node.Placements(); err != nil {
		return err
	}
	list, err := s.resources.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	out.reported = map[string]*podresourcesv1.ContainerResources{}
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			out.reported[p.Name+"/"+c.Name] = c
		}
	}
	out.held, err = s.node.Assigned()
	return err
}

func (s *faulty) lookAtRuntime(ctx context.Context, out *observed) error {
	list, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	out.sandboxes = list.Items
	out.addresses = map[types.UID]string{}
	for _, sb := range out.sandboxes {
		if sb.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		status, err := s.runtime.PodSandboxStatus(ctx,
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb.Id})
		if err != nil {
			return err
		}
		out.addresses[types.UID(sb.Labels[labelUID])] = status.Status.GetNetwork().GetIp()
	}
	containers, err := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	out.containers = map[types.UID]map[string][]*runtimeapi.ContainerStatus{}
	for _, c := range containers.Containers {
		status, err := s.runtime.ContainerStatus(ctx,
			&runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			return err
		}
		uid, name := types.UID(c.Labels[labelUID]), c.Labels[labelName]
		if out.containers[uid] == nil {
			out.containers[uid] = map[string][]*runtimeapi.ContainerStatus{}
		}
		out.containers[uid][name] = append(out.containers[uid][name], status.Status)
	}
	for _, of := range out.containers {
		for _, all := range of {
			slices.SortFunc(all, func(a, b *runtimeapi.ContainerStatus) int {
				return int(a.CreatedAt - b.CreatedAt)
			})
		}
	}
	return nil
}

// alive returns an error unless the node's lease was renewed since a time and the node is ready
// without taints.
func (s *faulty) alive(since time.Time) error {
	ctx := context.Background()
	l, err := s.c.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, s.node.Name,
		metav1.GetOptions{})
	if err != nil {
		return err
	}
	if l.Spec.RenewTime.Before(&metav1.MicroTime{Time: since}) {
		return fmt.Errorf("the node's lease was renewed last %s", l.Spec.RenewTime)
	}
	node, err := s.c.Client.CoreV1().Nodes().Get(ctx, s.node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			return fmt.Errorf("the node is not ready: %s: %s", c.Reason, c.Message)
		}
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node has taints %v", node.Spec.Taints)
	}
	return nil
}

// lookForLeft finds what the file system has of pods.
func (s *faulty) lookForLeft(_ context.Context, out *observed) error {
	out.left = map[types.UID]string{}
	dirs, err := filepath.Glob(filepath.Join(s.node.Root, "pods", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		out.left[types.UID(filepath.Base(dir))] = dir
	}
	mounts, err := mount.New("").List()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if rest, ours := strings.CutPrefix(m.Path, s.node.Root+"/pods/"); ours {
			uid, _, _ := strings.Cut(rest, "/")
			out.left[types.UID(uid)] = "mount " + m.Path
		}
	}
	if s.cgroup == "" {
		return nil
	}
	for _, pattern := range []string{"pod*", "*/pod*"} {
		groups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", s.cgroup, "kubepods",
			pattern))
		if err != nil {
			return err
		}
		for _, dir := range groups {
			if _, err := os.Stat(dir); err == nil {
				out.left[types.UID(strings.TrimPrefix(filepath.Base(dir), "pod"))] = dir
			}
		}
	}
	return nil
}

// newest returns the container of that name that was created last.
func (s *observed) newest(uid types.UID, name string) *runtimeapi.ContainerStatus {
	all := s.containers[uid][name]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// identity returns what must not change of a container that need not be restarted.
func identity(c v1.ContainerStatus) string {
	started := ""
	if r := c.State.Running; r != nil {
		started = r.StartedAt.String()
	}
	return fmt.Sprintf("%s, restarts %d, started %s", c.ContainerID, c.RestartCount, started)
}
