package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resizes changes the CPU limit of pods that run, one at a time and then all at once, and measures until the
// container's cgroup has it, and until the pod's status says so. group is the node's cgroupRoot.
func (n *node) resizes(group string) {
	var cgroup, reported []float64
	quotas := map[string]string{}
	for i := range n.settings.burst {
		name := fmt.Sprintf("resize%d", i)
		pod := n.pod(name)
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")},
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("20m")},
		}
		n.create(pod)
	}
	for i := range n.settings.burst {
		name := fmt.Sprintf("resize%d", i)
		n.when("ready", n.ready, name)
		quotas[name] = n.quotaFile(group, name)
	}
	for i := range n.settings.singles {
		name := fmt.Sprintf("resize%d", i)
		began := n.resize(name, 30)
		cgroup = append(cgroup, ms(n.hasQuota(quotas[name], 3000).Sub(began)))
		reported = append(reported, ms(n.isReported(name, "30m").Sub(began)))
	}
	n.column.add("resize_to_cgroup_p50_ms", median(cgroup))
	n.column.add("resize_to_status_p50_ms", median(reported))
	began := time.Now()
	for name := range quotas {
		n.resize(name, 40)
	}
	for _, file := range quotas {
		n.hasQuota(file, 4000)
	}
	n.column.add("resize_all_to_cgroup_ms", ms(time.Since(began)))
	for name := range quotas {
		n.isReported(name, "40m")
	}
	n.column.add("resize_all_to_status_ms", ms(time.Since(began)))
	for name := range quotas {
		n.remove(name)
	}
	for name := range quotas {
		n.when("gone", n.gone, name)
	}
}

// resize changes the CPU limit of a pod and says when.
func (n *node) resize(name string, millis int) time.Time {
	n.t.Helper()
	began := time.Now()
	_, err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Patch(context.Background(), name,
		types.StrategicMergePatchType, fmt.Appendf(nil,
			`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"%dm"}}}]}}`, millis),
		metav1.PatchOptions{}, "resize")
	if err != nil {
		n.t.Error(err)
	}
	return began
}

// quotaFile returns the file of the kernel with the CPU quota of the pod's container.
func (n *node) quotaFile(group, name string) string {
	n.t.Helper()
	pod, err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	for _, pattern := range []string{"/sys/fs/cgroup/cpu" + group + "/kubepods/burstable/pod" + string(pod.UID) + "/" + id + "/cpu.cfs_quota_us",
		"/sys/fs/cgroup" + group + "/kubepods/burstable/pod" + string(pod.UID) + "/" + id + "/cpu.max"} {
		if found, _ := filepath.Glob(pattern); len(found) == 1 {
			return found[0]
		}
	}
	n.t.Fatalf("pod %s has no CPU quota", name)
	return ""
}

// hasQuota waits until the file has a quota in microseconds.
func (n *node) hasQuota(file string, quota int) time.Time {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(file)
		if err != nil {
			n.t.Fatal(err)
		}
		if has, _, _ := strings.Cut(strings.TrimSpace(string(text)), " "); has == fmt.Sprint(quota) {
			return time.Now()
		}
	}
	n.t.Fatalf("%s does not become %d", file, quota)
	return time.Time{}
}

// isReported waits until the pod's status has a CPU limit, and tells of no resize.
func (n *node) isReported(name, limit string) time.Time {
	n.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		pod, err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			n.t.Fatal(err)
		}
		over := true
		for _, c := range pod.Status.Conditions {
			over = over && c.Type != v1.PodResizeInProgress && c.Type != v1.PodResizePending
		}
		if has := pod.Status.ContainerStatuses[0].Resources; over && has != nil && has.Limits.Cpu().String() == limit {
			return time.Now()
		}
	}
	n.t.Fatalf("pod %s is not said to have %s", name, limit)
	return time.Time{}
}
