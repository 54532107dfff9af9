package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/harness"
)

// evictionKill is a point of an eviction.
type evictionKill struct {
	// fault is on stopping the pod's container; the zero one is none.
	fault crisim.Fault
	// cut: the API server hears nothing of the end.
	cut bool
	// reached returns nil at the point.
	reached func(s *faulty, pod string) error
}

var evictionKills = map[string]evictionKill{
	"before-it-stops": {fault: crisim.Fault{Hang: true}, reached: stopping},
	"while-it-stops":  {fault: crisim.Fault{Delay: metav1.Duration{Duration: time.Second}}, reached: stopping},
	"before-the-word": {cut: true, reached: stopped},
	"after-the-word": {reached: func(s *faulty, pod string) error {
		p, err := get(s.t, s.c, s.c.Namespace, pod)
		if err == nil && p.Status.Phase != v1.PodFailed {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	}},
}

func stopping(s *faulty, pod string) error {
	for _, call := range s.node.Runtime.Journal(0) {
		if call.Method == "StopContainer" && call.Subject.Pod == pod {
			return nil
		}
	}
	return errors.New("its container is not stopped")
}

func stopped(s *faulty, pod string) error {
	if c, ok := s.node.Runtime.State().Container(pod, "main"); !ok || c.Running() {
		return fmt.Errorf("its container is %+v", c)
	}
	return nil
}

// TestEvictionKill kills the agent at each point of an eviction. The next one, whose node is short of
// nothing, goes on with it: the pod ends once, is not started again, and has failed as evicted; another
// pod runs on.
func TestEvictionKill(t *testing.T) {
	s := newFaulty(t, harness.New(t), nil, "")
	s.c.Apply(strings.Replace(bound(s.node.Name, "critical", ""), "spec: {",
		"spec: {priorityClassName: system-node-critical, ", 1))
	before := await(t, s.c, s.c.Namespace, "critical", runs)
	for name, at := range evictionKills {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
			pod := name + "-" + strings.ToLower(string(policy))
			t.Run(pod, func(t *testing.T) { s.as(t).killEvicting(pod, policy, at) })
		}
	}
	after := await(t, s.c, s.c.Namespace, "critical", runs)
	if a, b := identity(before.Status.ContainerStatuses[0]),
		identity(after.Status.ContainerStatuses[0]); a != b {
		t.Errorf("the critical pod's container was %q, and is %q", a, b)
	}
}

// TestEvictedHolds: what an evicted pod holds is its own while something of it runs, and free afterwards.
// The pod has failed although its container exits with 0.
func TestEvictedHolds(t *testing.T) {
	s := newFaulty(t, harness.New(t), nil, "")
	s.c.Apply(strings.Replace(bound(s.node.Name, "holds", ", resources: {limits: {"+gpu+": 1, cpu: 1, memory: 64Mi}}"),
		"name: holds}", "name: holds, annotations: {sim.numalet.io/main: term=0}}", 1))
	p := await(t, s.c, s.c.Namespace, "holds", runs)
	held := func() bool {
		state, err := s.node.Assigned()
		if err != nil {
			t.Fatal(err)
		}
		return !state.Pods[p.UID].IsEmpty()
	}
	if err := s.node.Runtime.SetFault(crisim.Fault{Method: "StopContainer", Pod: "holds", Hang: true}); err != nil {
		t.Fatal(err)
	}
	s.short("900Ti")
	harness.Eventually(t, "it is being evicted", func() error { return stopping(s, "holds") })
	if !held() {
		t.Error("a pod that runs holds nothing any more")
	}
	s.node.Runtime.ClearFaults()
	p = await(t, s.c, s.c.Namespace, "holds", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	end := p.Status.ContainerStatuses[0].State.Terminated
	if p.Status.Reason != "Evicted" || end == nil || end.ExitCode != 0 {
		t.Errorf("it is %s: %s, its container %+v", p.Status.Phase, p.Status.Reason, end)
	}
	harness.Eventually(t, "it holds nothing", func() error {
		if held() {
			return errors.New("it does")
		}
		return nil
	})
}

// TestEvictedFromDisk: the containers of a pod that was evicted for a disk are removed, since their layers are
// the room that is needed, while the API server still has the pod.
func TestEvictedFromDisk(t *testing.T) {
	s := newFaulty(t, harness.New(t), nil, "")
	s.startEvicted("writes")
	s.node.Kill()
	s.node.Settings["evictionHard"] = map[string]string{"nodefs.available": "900Ti"}
	s.node.Start()
	await(t, s.c, s.c.Namespace, "writes", func(p *v1.Pod) bool { return p.Status.Reason == "Evicted" })
	harness.Eventually(t, "its container is removed", func() error {
		if c, is := s.node.Runtime.State().Container("writes", "main"); is {
			return fmt.Errorf("it is %s", c.State)
		}
		return nil
	})
}

// as is the node in a subtest.
func (s *faulty) as(t *testing.T) *faulty {
	of := *s
	of.t = t
	return &of
}

func (s *faulty) killEvicting(pod string, policy v1.RestartPolicy, at evictionKill) {
	t := s.t
	s.startEvicted(pod, "restartPolicy: "+string(policy)+", ")
	if at.fault.Hang || at.fault.Delay.Duration > 0 {
		at.fault.Method, at.fault.Pod = "StopContainer", pod
		if err := s.node.Runtime.SetFault(at.fault); err != nil {
			t.Fatal(err)
		}
	}
	s.short("900Ti")
	if at.cut { // once it has the pod
		s.node.AwaitPhase(pod, v1.PodRunning)
		s.proxy.Set(faults.Trouble{Share: 1, Hang: true})
		s.proxy.Cut()
	}
	harness.Eventually(t, "the pod is being evicted", func() error { return at.reached(s, pod) })
	s.node.Kill()
	s.node.Runtime.ClearFaults()
	s.proxy.Set(faults.Trouble{})
	s.short("1Mi")
	s.evictedOnce(pod)
}

// startEvicted starts a pod that is to be evicted.
func (s *faulty) startEvicted(pod string, more ...string) {
	s.c.Apply(strings.Replace(bound(s.node.Name, pod, ", resources: {requests: {cpu: 10m}}"), "spec: {",
		"spec: {"+strings.Join(more, ""), 1))
	await(s.t, s.c, s.c.Namespace, pod, runs)
}

// evictedOnce waits until the pod was evicted, and removes it. Its container must have been started once.
func (s *faulty) evictedOnce(pod string) {
	t := s.t
	p := await(t, s.c, s.c.Namespace, pod, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	const message = "The node was low on resource: memory. Threshold quantity: 900Ti, available: "
	if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, message) ||
		!strings.HasPrefix(disruption(p), "True TerminationByKubelet "+message) {
		t.Errorf("it is %s %s %q; %s", p.Status.Phase, p.Status.Reason, p.Status.Message, disruption(p))
	}
	if started := (killing{runtime: s.node.Runtime}).started(pod); started != 1 {
		t.Errorf("its container was started %d times", started)
	}
	s.c.MustRun("delete", "pod", pod, "--timeout=1m")
}

// short starts the agent anew, on a node that is short of memory below so much.
func (s *faulty) short(below string) {
	s.node.Kill()
	s.node.Settings["evictionHard"] = map[string]string{"nodefs.inodesFree": "0%"}
	s.node.Settings["evictionSoft"] = map[string]string{"memory.available": below}
	s.node.Settings["evictionSoftGracePeriod"] = map[string]string{"memory.available": "3s"}
	s.node.Settings["evictionMaxPodGracePeriod"] = 2
	s.node.Settings["evictionPressureTransitionPeriod"] = "1s"
	s.node.Start()
}
