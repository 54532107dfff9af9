package hollow

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/apitest"
	"github.com/numalet/numalet/internal/podtest"
)

// A container has other resources at once, or when it is started anew if its policy says so. Only then the
// pod is settled.
func TestResizeInRuntime(t *testing.T) {
	sized := func(cpu, memory string) *v1.Pod {
		pod := podtest.New("n/a", podtest.Containers("main cpu="+cpu+" memory="+memory, "side"))
		pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
			{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
			{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer},
		}
		return pod
	}
	r, pod := newRuntime("198.18.0.1", func() string { return "198.19.0.1" }), sized("..2", "..1Gi")
	do := func(pod *v1.Pod, actions ...podworker.Action) {
		t.Helper()
		for _, a := range actions {
			if err := r.do(t.Context(), pod, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := podworker.Action{Kind: podworker.StartContainer, Container: "main"}
	do(pod, podworker.Action{Kind: podworker.CreateSandbox}, start,
		podworker.Action{Kind: podworker.StartContainer, Container: "side"})
	settled := 0
	expect := func(when string, quota, memory int64, times int) {
		t.Helper()
		for _, c := range seen(t, r).Containers {
			if a := c.Applied; c.Name == "main" && c.State == cri.ContainerRunning &&
				(a.Quota != quota || a.Memory != memory) {
				t.Errorf("%s: the runtime reports %+v", when, a)
			}
		}
		if settled != times {
			t.Errorf("%s: settled %d times, want %d", when, settled, times)
		}
	}
	expect("at first", 200000, 1<<30, 0)
	before := seen(t, r)
	r.Resize(sized("..3", "..1Gi"), func() { settled++ })
	expect("with more CPUs", 300000, 1<<30, 1)
	if before.Containers[1].Applied.Quota != 200000 {
		t.Error("what was observed has changed")
	}
	grown := sized("..3", "..2Gi")
	r.Resize(grown, func() { settled++ })
	expect("before it is started anew", 300000, 1<<30, 1)
	do(grown, podworker.Action{Kind: podworker.StopContainers, IDs: []string{before.Containers[1].ID}})
	start.Attempt = 1
	do(grown, start)
	expect("started anew", 300000, 2<<30, 2)
	r.Resize(podtest.New("n/other"), func() { settled++ })
	expect("of a pod that is not there", 300000, 2<<30, 3)
}

// runNode runs a hollow node until the test ends.
func runNode(t *testing.T, kubeconfig string) {
	t.Helper()
	nodes, err := New(t.Context(), Config{
		Kubeconfig: kubeconfig, Root: t.TempDir(), Prefix: "h-", Requests: 100, Pace: 10,
		Machines: []Machines{{"fixture:laptop", 1}},
		Settings: map[string]any{"contentType": "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func resizes(p *v1.Pod, how v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == how })
}

// has reports whether the container runs with these resources, and nothing is on the way.
func has(cpus, memory string, restarts int32) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		if p.Status.Phase != v1.PodRunning || len(p.Status.ContainerStatuses) != 1 ||
			resizes(p, v1.PodResizeInProgress) || resizes(p, v1.PodResizePending) {
			return false
		}
		c := p.Status.ContainerStatuses[0]
		return c.Resources != nil && c.AllocatedResources.Cpu().String() == cpus &&
			c.Resources.Requests.Cpu().String() == cpus && c.Resources.Limits.Memory().String() == memory &&
			c.State.Running != nil && c.RestartCount == restarts
	}
}

// A resize of a hollow node's pod goes the whole way from its spec at the API server to its status there.
func TestResizeReachesStatus(t *testing.T) {
	pod := podtest.New("n/a", podtest.UID("uid-a"), podtest.Containers("main cpu=2..4 memory=1Gi..2Gi"))
	pod.Generation, pod.Spec.NodeName, pod.Spec.Containers[0].Image = 1, "h-laptop-0", "app"
	pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer},
	}
	a, kubeconfig := apitest.Start(t, pod)
	runNode(t, kubeconfig)
	resize := func(to string) {
		a.Change(func(p *v1.Pod) {
			p.Generation++
			p.Spec.Containers[0].Resources = podtest.Requirements(to)
		})
	}
	a.Await(t, "the pod does not run", has("2", "2Gi", 0))
	resize("cpu=3..4 memory=1Gi..2Gi")
	a.Await(t, "it does not grow", has("3", "2Gi", 0))
	resize("cpu=3..4 memory=1Gi..3Gi")
	a.Await(t, "it is not started anew for more memory", has("3", "3Gi", 1))
	resize("cpu=500..600 memory=1Gi..3Gi")
	a.Await(t, "more than the machine has is not deferred", func(p *v1.Pod) bool {
		return resizes(p, v1.PodResizePending) &&
			p.Status.ContainerStatuses[0].AllocatedResources.Cpu().String() == "3"
	})
	resize("cpu=1..4 memory=1Gi..3Gi")
	a.Await(t, "it does not shrink", has("1", "3Gi", 1))
	if p, _ := a.Pod(); p.Status.ObservedGeneration != 5 {
		t.Errorf("its status is of generation %d", p.Status.ObservedGeneration)
	}
}
