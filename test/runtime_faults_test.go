package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// mishaps maps names to ways in which one call to the runtime goes wrong.
var mishaps = map[string]crisim.Fault{
	"fails":  {Error: "no luck"},
	"hangs":  {Hang: true},
	"lost":   {Error: "connection reset", Code: "Unavailable", After: true},
	"silent": {Hang: true, After: true},
	"slow":   {Delay: metav1.Duration{Duration: 500 * time.Millisecond}},
}

// impatient makes calls to the runtime time out soon.
func (s *site) impatient() { s.Settings["runtimeRequestTimeout"] = "3s" }

// mishap makes the next count calls of a method about a pod go wrong.
func (s *site) mishap(method, how string, w workload, count int) {
	s.t.Helper()
	fault := mishaps[how]
	fault.Method, fault.Pod, fault.Count = method, w.node(), count
	s.must(s.Runtime.SetFault(fault))
}

// Each call of a pod's start and end once fails, hangs, or takes effect without an answer. The pod
// starts and ends all the same, and no container runs twice meanwhile.
func TestRuntimeCalls(t *testing.T) {
	s := newSite(t)
	s.impatient()
	s.Plugin(gpu, "--devices=8")
	s.Start()
	var down []func()
	for how, mishap := range mishaps {
		up := []string{"RunPodSandbox", "CreateContainer", "StartContainer"}
		if !mishap.Hang { // a pull has no deadline, as with the kubelet
			up = append(up, "PullImage")
		}
		for _, method := range up {
			w := workload{
				name: strings.ToLower(method) + "-" + how, main: need{cpus: "2"},
				generation: len(s.wants),
			}
			switch len(s.wants) % 4 {
			case 0:
				w.main = need{cpus: "200m", gpus: 1}
			case 1:
				w.init = &need{cpus: "2", script: "exit=0"}
			case 2:
				w.sidecar = &need{cpus: "200m"}
			}
			s.mishap(method, how, w, 1)
			s.want(w)
		}
		for _, method := range []string{
			"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox",
		} {
			w := workload{name: strings.ToLower(method) + "-" + how, main: need{cpus: "100m"}}
			s.want(w)
			down = append(down, func() { s.mishap(method, how, w, 1) })
		}
	}
	s.settles()
	for _, w := range s.wants {
		s.ready(w, 1)
	}
	for _, fault := range down {
		fault()
	}
	s.nothingLeaked(everything(8))
}

// ready checks how many ready sandboxes a pod has.
func (s *site) ready(w workload, want int) {
	s.t.Helper()
	got := 0
	for _, sandbox := range s.Runtime.State().Sandboxes {
		if sandbox.Pod == w.node() && sandbox.Ready {
			got++
		}
	}
	if got != want {
		s.t.Errorf("pod %s has %d ready sandboxes, want %d", w.name, got, want)
	}
}

// If a container cannot be moved off CPUs, their new owner does not start until it can be moved or
// is gone.
func TestSharedPoolCannotShrink(t *testing.T) {
	for _, how := range []string{"fails", "hangs", "lost", "silent", "slow"} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			s.impatient()
			s.Start()
			shared := workload{name: "shared", main: need{cpus: "200m"}}
			s.want(shared)
			s.settles()
			s.mishap("UpdateContainerResources", how, shared, 1)
			s.want(workload{name: "alone", main: need{cpus: "4"}})
			s.settles()
		})
	}
}

// A runtime that does not answer stops no container, and the agent goes on when it answers again.
func TestRuntimeCannotBeListed(t *testing.T) {
	for _, method := range []string{
		"ListContainers", "ListPodSandbox", "ContainerStatus", "PodSandboxStatus", "*",
	} {
		for _, how := range []string{"fails", "hangs"} {
			t.Run(strings.ReplaceAll(method, "*", "all")+" "+how, func(t *testing.T) {
				s := newSite(t)
				s.impatient()
				s.Start()
				s.want(other)
				s.settles()
				s.runs(other)
				fault := mishaps[how]
				fault.Method = method
				s.must(s.Runtime.SetFault(fault))
				late := workload{name: "late", main: need{cpus: "1"}}
				s.want(late)
				s.Eventually("the fault is met", func() error {
					if logged(t, s.Node, "Cannot observe pod", late.node()) == 0 {
						return fmt.Errorf("nothing is logged")
					}
					return nil
				})
				s.Runtime.ClearFaults()
				s.settles()
			})
		}
	}
}

// The agent starts although the runtime cannot be listed yet, and adopts what runs as soon as it
// can.
func TestAgentStartsBeforeTheRuntimeAnswers(t *testing.T) {
	s := newSite(t)
	s.impatient()
	s.Start()
	s.want(other)
	s.settles()
	s.runs(other)
	s.Kill()
	s.must(s.Runtime.SetFault(crisim.Fault{Method: "ListPodSandbox", Error: "not yet"}))
	calls := s.Runtime.State().Calls["ListPodSandbox"]
	s.StartOnly()
	s.Eventually("the agent has asked twice", func() error {
		if got := s.Runtime.State().Calls["ListPodSandbox"]; got < calls+2 {
			return fmt.Errorf("%d calls", got-calls)
		}
		return nil
	})
	s.Runtime.ClearFaults()
	s.settles()
}

// Exits are noticed with events, without events, and if the stream only seems to work.
func TestEventsAreLost(t *testing.T) {
	for name, lose := range map[string]func(*site){
		"stream dropped": func(s *site) { s.Runtime.DropEvents() },
		"silent":         func(s *site) { s.must(s.Runtime.SetEvents(crisim.EventsSilent)) },
		"unimplemented":  func(s *site) { s.must(s.Runtime.SetEvents(crisim.EventsUnimplemented)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.Start()
			job := workload{name: "job", main: need{cpus: "2", noRestart: true}}
			s.want(job, other)
			s.settles()
			s.runs(other)
			lose(s)
			s.must(s.Runtime.Exit(job.node()+"/main", crisim.Exit{Code: 3}))
			st := s.AwaitPhase(job.node(), v1.PodFailed).Status
			if got := st.ContainerStatuses[0].State.Terminated; got == nil || got.ExitCode != 3 {
				t.Errorf("the container's state is %+v, want exit code 3",
					st.ContainerStatuses[0].State)
			}
			s.nothingLeaked(everything(0))
		})
	}
}

// A runtime without network creates no sandboxes. The pods say so and start once it has one.
func TestRuntimeNotReady(t *testing.T) {
	s := newSite(t)
	s.Runtime.SetReady(crisim.Ready{Runtime: true, Message: "no network config"})
	s.Start()
	s.want(other)
	s.Eventually("the pod says why it waits", func() error {
		pods, err := s.Pods()
		if err != nil {
			return err
		}
		for _, c := range pods[other.node()].Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && strings.Contains(w.Message, "no network config") {
				return nil
			}
		}
		return fmt.Errorf("its status is %+v", pods[other.node()].Status)
	})
	s.Runtime.SetReady(crisim.Ready{Runtime: true, Network: true})
	s.settles()
}

// If the sandboxes of a pod die again and again, the runtime keeps two of them, with the containers
// that are needed. The next sandbox is created after a back-off.
func TestSandboxesDoNotPileUp(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("undone", manifestOf("undone", `containers: [{name: main, image: sim.local/app}]`))
	pod, sandbox := n.AwaitPhase("undone-node", v1.PodRunning), ""
	for range 3 {
		awaitContainer(n, "undone-node", "main", func(c crisim.Container) error {
			if c.SandboxID == sandbox || !c.Running() {
				return fmt.Errorf("it is %s in sandbox %s", c.State, c.SandboxID)
			}
			sandbox = c.SandboxID
			return nil
		})
		if err := n.Runtime.KillSandbox(sandbox); err != nil {
			t.Fatal(err)
		}
	}
	n.Eventually("the pod says that it waits", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		if got := pods["undone-node"].Status.Message; got !=
			"back-off 20s creating another sandbox: pod sandbox is not ready" {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	n.Eventually("the last two sandboxes are left", func() error {
		left := 0
		for _, s := range n.Runtime.State().Sandboxes {
			if s.Config.GetMetadata().GetUid() == string(pod.UID) {
				left++
			}
		}
		if left != 2 {
			return fmt.Errorf("%d are", left)
		}
		return nil
	})
}

// A sandbox that dies without the agent's doing is replaced, with its containers and what the pod
// holds.
func TestSandboxIsKilled(t *testing.T) {
	s := newSite(t)
	s.Plugin(gpu, "--devices=4")
	s.Start()
	pod := workload{name: "pod", main: need{cpus: "2", gpus: 1},
		init: &need{cpus: "4", script: "exit=0"}, sidecar: &need{cpus: "1", gpus: 1}}
	s.want(pod, other)
	s.settles()
	s.runs(other)
	before := container(t, s.Node, pod.node(), "main")
	s.must(s.Runtime.KillSandbox("default/" + pod.node()))
	awaitContainer(s.Node, pod.node(), "main", func(c crisim.Container) error {
		if c.SandboxID == before.SandboxID || !c.Running() {
			return fmt.Errorf("it is %s in sandbox %s", c.State, c.SandboxID)
		}
		return nil
	})
	s.settles()
	s.ready(pod, 1)
	after := container(t, s.Node, pod.node(), "main")
	if after.CPUs != before.CPUs || after.Env()["SIM_GPU_VISIBLE_DEVICES"] !=
		before.Env()["SIM_GPU_VISIBLE_DEVICES"] {
		t.Errorf("before it had CPUs %s and %v, now %s and %v", before.CPUs, before.Env(),
			after.CPUs, after.Env())
	}
	s.nothingLeaked(everything(4))
}
