package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

// TestMemoryInUseIsNotTaken: a memory limit below what a real container uses is refused, and set once the container
// uses less, as by the stock kubelet: with the same conditions and events, and without a restart.
func TestMemoryInUseIsNotTaken(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			c := rig.Start(t)
			n, d, _ := containerdrig.Node(t)
			containerdrig.ImportShell(t, d)
			if agent == "kubelet" {
				rig.StockKubelet(t, n)
			}
			n.Settings["syncFrequency"] = "1s" // refused limits are tried again so often
			s := &side{Cluster: c, Node: c.Join(n, "resize-memory-"+agent)}
			s.Start()
			s.AwaitReady(s.Name)
			reported[agent] = s.shrinkInUse(t, "one", "") + s.shrinkInUse(t, "two", `, {name: other, image: "`+
				containerdrig.ShellImage+`", command: [sleep, "600"], resources: {limits: {memory: 16Mi}}}`)
			s.MustRun("delete", "pods", "--all", "--timeout=1m")
		})
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
}

// shrinkInUse shrinks a pod whose container main has 40 MiB in a volume in memory to 32 MiB, deletes the file once
// that is refused, and returns what was said and done.
func (s *side) shrinkInUse(t *testing.T, name, others string) string {
	t.Helper()
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: %s,
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1, tolerations: [{operator: Exists}],
 volumes: [{name: memory, emptyDir: {medium: Memory}}], containers: [{name: main, image: "%s",
  command: [sh, -c, "dd if=/dev/zero of=/memory/held bs=1M count=40; touch /ready; exec sleep 600"],
  readinessProbe: {periodSeconds: 1, exec: {command: [test, -e, /ready]}},
  resources: {requests: {memory: 16Mi}, limits: {memory: 96Mi}},
  volumeMounts: [{name: memory, mountPath: /memory}]}%s]}}`, name, s.Name, containerdrig.ShellImage, others))
	began := await(t, s.Cluster, s.Namespace, name, runs)
	s.MustRun("patch", "pod", name, "--subresource=resize", "--type=strategic", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"32Mi"}}}]}}`)
	refused := resizeCondition(await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool {
		return resizeCondition(p).Reason == v1.PodReasonError
	}))
	said := fmt.Sprintln(refused.Type, refused.Status, refused.Reason, refused.Message, refused.ObservedGeneration)
	said += "meanwhile " + s.memoryLimit(name) + eventsOf(t, s, name, "ResizeError") + "\n"
	s.MustRun("exec", name, "-c", "main", "--", "rm", "/memory/held")
	p := await(t, s.Cluster, s.Namespace, name, isSized(began.Generation+1))
	has := p.Status.ContainerStatuses[0]
	said += fmt.Sprintln(has.AllocatedResources.Memory(), has.Resources.Limits.Memory(), has.RestartCount,
		has.ContainerID == began.Status.ContainerStatuses[0].ContainerID)
	said += "then " + s.memoryLimit(name) + eventsOf(t, s, name, "ResizeStarted") + "\n"
	for line := range strings.Lines(eventsOf(t, s, name, "ResizeCompleted") + "\n") {
		if !strings.Contains(line, `"96Mi"`) { // the kubelet also says that a resize to what the pod had was completed
			said += line
		}
	}
	return regexp.MustCompile(`usage \(\d+\)`).ReplaceAllString(said, "usage (N)")
}

// memoryLimit reads the kernel's limit from inside the container main.
func (s *side) memoryLimit(name string) string {
	return s.MustRun("exec", name, "-c", "main", "--", "sh", "-c",
		"cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max")
}

// resizeCondition returns the pod's condition of a resize in progress; one without a type: there is none.
func resizeCondition(p *v1.Pod) v1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizeInProgress {
			return c
		}
	}
	return v1.PodCondition{}
}
