package cluster_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestResizeIsInfeasible: a resize of a pod with exclusive CPUs is refused in the kubelet's words.
// The pod keeps what it was admitted with, across a restart of the agent, and no other pod gets
// that.
func TestResizeIsInfeasible(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			c := rig.Start(t)
			n := harness.New(t)
			rig.ThisMachine(n)
			if agent == "kubelet" {
				rig.StockKubelet(t, n)
			}
			n.Settings["topologyManagerPolicy"] = "none"
			s := &side{Cluster: c, Node: c.Join(n, "resize-"+agent)}
			s.Start()
			s.AwaitReady(s.Name)
			pod := func(name, cpu string) {
				t.Helper()
				s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 initContainers: [{name: first, image: "sim.local/exit:0", resources: {limits: {cpu: %[3]s,
   memory: 64Mi}}}],
 containers: [{name: main, image: sim.local/app, resources: {limits: {cpu: %[3]s, memory: 64Mi}}}]}}`,
					name, s.Name, cpu))
			}
			pod("exclusive", "1")
			await(t, c, c.Namespace, "exclusive", runs)
			reported[agent] = s.resize(t, "exclusive", `{"cpu":"500m"}`)
			s.Kill()
			s.Start()
			pod("greedy", "1") // one of two CPUs is reserved
			refused := await(t, c, c.Namespace, "greedy", func(p *v1.Pod) bool {
				return p.Status.Phase == v1.PodFailed
			})
			reported[agent] += fmt.Sprintln(refused.Status.Reason) + allocatedCPU(t, s, "exclusive")
			s.MustRun("delete", "pods", "--all", "--timeout=1m")
		})
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
}

// TestSwitchBackWithAResize: a pod was resized under numalet, which the static policy does not
// allow. A kubelet that takes over the node reports the same, and restarts nothing.
func TestSwitchBackWithAResize(t *testing.T) {
	c := rig.Start(t)
	n := harness.New(t)
	rig.StockKubelet(t, n)
	kubelet := n.Program
	n.Program = nil
	n.Settings["topologyManagerPolicy"] = "none"
	s := &side{Cluster: c, Node: c.Join(n, "resize-switch")}
	s.Start()
	s.AwaitReady(s.Name)
	s.Apply(bound(s.Name, "exclusive", `, resources: {limits: {cpu: 1, memory: 64Mi}}`))
	began := await(t, c, c.Namespace, "exclusive", runs)
	s.resize(t, "exclusive", `{"cpu":"500m"}`)
	has := allocatedCPU(t, s, "exclusive")
	if err := s.Node.Stop(); err != nil {
		t.Error(err)
	}
	n.Program = kubelet
	s.Start()
	s.Apply(bound(s.Name, "beside", "")) // once it runs the kubelet has seen everything
	await(t, c, c.Namespace, "beside", runs)
	if got := allocatedCPU(t, s, "exclusive"); got != has {
		t.Errorf("under the kubelet it has\n%sand under numalet\n%s", got, has)
	}
	now, err := get(t, c, c.Namespace, "exclusive")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := began.Status.ContainerStatuses, now.Status.ContainerStatuses; a[0].ContainerID !=
		b[0].ContainerID {
		t.Errorf("its container was %+v and is %+v", a, b)
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// TestSwitchAfterAResize: a pod was resized and another resize of it is deferred. The agent that takes over the
// node finds it as it was allocated, starts nothing anew, and says the same of what is deferred. So does the first
// one when it takes over again.
func TestSwitchAfterAResize(t *testing.T) {
	for _, first := range agents {
		t.Run("from "+first, func(t *testing.T) {
			c := rig.Start(t)
			n := harness.New(t)
			rig.StockKubelet(t, n)
			programs := map[string][]string{"kubelet": n.Program, "numalet": nil}
			n.Program = programs[first]
			group := ownCgroup(t, "resize-switch")
			n.Settings["cgroupsPerQOS"], n.Settings["cgroupRoot"] = true, group
			n.Settings["cpuManagerPolicy"], n.Settings["topologyManagerPolicy"] = "none", "none"
			s := &side{Cluster: c, Node: c.Join(n, "resize-from-"+first)}
			s.Start()
			s.AwaitReady(s.Name)
			s.Apply(bound(s.Name, "filler", `, resources: {requests: {cpu: 500m}}`))
			s.Apply(bound(s.Name, "app", `, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 20m, memory: 32Mi}}`))
			s.Apply(bound(s.Name, "anew", `, resources: {requests: {memory: 16Mi}, limits: {memory: 32Mi}},
 resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]`))
			await(t, c, c.Namespace, "filler", runs)
			await(t, c, c.Namespace, "anew", runs)
			began := await(t, c, c.Namespace, "app", runs)
			patch := func(resources string) {
				s.MustRun("patch", "pod", "app", "--subresource=resize", "--type=strategic", "-p",
					`{"spec":{"containers":[{"name":"main","resources":`+resources+`}]}}`)
			}
			patch(`{"requests":{"cpu":"30m","memory":"24Mi"},"limits":{"cpu":"60m","memory":"64Mi"}}`)
			await(t, c, c.Namespace, "app", hasCPU("main", "30m"))
			patch(`{"requests":{"cpu":"700m"},"limits":{"cpu":"700m"}}`)
			state := func() string {
				p := await(t, c, c.Namespace, "app", pendingFor(v1.PodReasonDeferred))
				has := p.Status.ContainerStatuses[0]
				return fmt.Sprintln(has.AllocatedResources.Cpu(), has.AllocatedResources.Memory(), has.Resources.Limits.Cpu(),
					has.Resources.Limits.Memory(), has.RestartCount, has.ContainerID == began.Status.ContainerStatuses[0].ContainerID,
					pendingResize(p))
			}
			has := state()
			if err := s.Node.Stop(); err != nil {
				t.Error(err)
			}
			for agent, program := range programs {
				if agent != first {
					n.Program = program
				}
			}
			s.Start()
			s.Apply(bound(s.Name, "beside", "")) // once it runs the agent has seen everything
			await(t, c, c.Namespace, "beside", runs)
			if got := state(); got != has {
				t.Errorf("it has\n%sand had\n%s", got, has)
			}
			s.MustRun("delete", "pod", "filler", "--timeout=1m")
			await(t, c, c.Namespace, "app", hasCPU("main", "700m"))
			s.MustRun("patch", "pod", "anew", "--subresource=resize", "--type=strategic", "-p",
				`{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"24Mi"},"limits":{"memory":"64Mi"}}}]}}`)
			await(t, c, c.Namespace, "anew", is("main", 1, running))
			await(t, c, c.Namespace, "anew", isSettledResize)
			if err := s.Node.Stop(); err != nil {
				t.Error(err)
			}
			n.Program = programs[first]
			s.Start()
			s.Apply(bound(s.Name, "beside-again", ""))
			await(t, c, c.Namespace, "beside-again", runs)
			for pod, restarts := range map[string]int32{"app": 0, "anew": 1} {
				now, err := get(t, c, c.Namespace, pod)
				if err != nil {
					t.Fatal(err)
				}
				if got := now.Status.ContainerStatuses[0].RestartCount; got != restarts {
					t.Errorf("%s was started anew %d times, want %d", pod, got, restarts)
				}
			}
			s.MustRun("delete", "pods", "--all", "--timeout=1m")
		})
	}
}

// isSettledResize reports whether no resize of the pod is in progress.
func isSettledResize(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizeInProgress {
			return false
		}
	}
	return true
}

// resize resizes the pod's container, and returns the agent's answer.
func (s *side) resize(t *testing.T, name, limits string) string {
	t.Helper()
	s.MustRun("patch", "pod", name, "--subresource=resize", "--type=strategic", "-p", fmt.Sprintf(
		`{"spec":{"containers":[{"name":"main","resources":{"limits":%s,"requests":%s}}]}}`,
		limits, limits))
	var said v1.PodCondition
	await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending {
				said = c
			}
		}
		return said.Type != "" && p.Status.ObservedGeneration == p.Generation
	})
	return fmt.Sprintln(said.Status, said.Reason, said.Message, said.ObservedGeneration) +
		eventsOf(t, s, name, "ResizeInfeasible") + "\n"
}

// pendingResize returns why a pod has not been resized; "": its status does not say.
func pendingResize(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			return c.Message
		}
	}
	return ""
}

// allocatedCPU returns the CPUs of a pod with a pending resize, once the agent says why it is
// pending.
func allocatedCPU(t *testing.T, s *side, name string) string {
	t.Helper()
	p := await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool { return pendingResize(p) != "" })
	c := p.Status.ContainerStatuses[0]
	return fmt.Sprintln(c.AllocatedResources.Cpu(), c.Resources.Limits.Cpu(), c.RestartCount,
		pendingResize(p))
}
