package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func TestGenerate(t *testing.T) {
	for _, tc := range []struct {
		name, pod, observed string
		edit                func(*Input)
		want                string
	}{
		{
			name: "nothing yet", pod: "Always web",
			want: `
				Pending
				web #0 waiting (ContainerCreating)
				not PodReadyToStartContainers: PodSandboxNotReady: no pod sandbox exists
				not Ready: ContainersNotReady: containers with unready status: [web]
				not ContainersReady: ContainersNotReady: containers with unready status: [web]`,
		},
		{
			name: "initializing", pod: "Always one two | web db", observed: "sandbox two one=0",
			want: `
				Pending
				one #0 exited 0 (Error), ready
				two #0 running, started
				db #0 waiting (PodInitializing)
				web #0 waiting (PodInitializing)
				not Initialized: ContainersNotInitialized: containers with incomplete status: [two]
				not Ready: ContainersNotReady: containers with unready status: [web db]
				not ContainersReady: ContainersNotReady: containers with unready status: [web db]`,
		},
		{
			name: "running, an init container's record removed", pod: "Always init side~ | web",
			observed: "sandbox web side", want: `
				Running
				init #0 exited 0 (Completed), ready
				side #0 running, ready
				web #0 running, ready`,
		},
		{
			name: "crash loop", pod: "Always web", observed: "sandbox web=1 web=2",
			edit: func(in *Input) {
				in.Waiting = map[string]Reason{"web": {cri.ReasonCrashLoopBackOff, "back-off 10s"}}
			},
			want: `
				Running
				web #1 waiting (CrashLoopBackOff) back-off 10s, before: exited 1 (Error)
				not Ready: ContainersNotReady: containers with unready status: [web]
				not ContainersReady: ContainersNotReady: containers with unready status: [web]`,
		},
		{
			name: "restarted", pod: "Always web", observed: "sandbox web web=2",
			want: "Running\nweb #1 running, before: exited 2 (Error), ready",
		},
		{
			name: "image that cannot be pulled", pod: "Never web", observed: "sandbox",
			edit: func(in *Input) {
				in.Waiting = map[string]Reason{"web": {cri.ReasonImagePullBackOff, "m"}}
			},
			want: `
				Pending
				web #0 waiting (ImagePullBackOff) m
				not Ready: ContainersNotReady: containers with unready status: [web]
				not ContainersReady: ContainersNotReady: containers with unready status: [web]`,
		},
		{
			name: "init containers run again in a new sandbox", pod: "Always init | web",
			observed: "sandbox sandbox! web=137 init=0",
			want: `
				Pending
				init #0 waiting (PodInitializing), before: exited 0 (Error)
				web #0 exited 137 (Error)
				not Ready: ContainersNotReady: containers with unready status: [web]
				not ContainersReady: ContainersNotReady: containers with unready status: [web]`,
		},
		{
			name: "the end is told when the last sidecar has stopped", pod: "Never side~ | job",
			observed: "sandbox job=0 side",
			edit: func(in *Input) {
				in.Stop.Terminating = true
				in.Previous.Phase = v1.PodRunning
			},
			want: `
				Running
				side #0 running, ready
				job #0 exited 0 (Error)
				not Ready: ContainersNotReady: containers with unready status: [job]
				not ContainersReady: ContainersNotReady: containers with unready status: [job]`,
		},
		{
			name: "succeeded", pod: "Never job", observed: "sandbox! job=0",
			want: `
				Succeeded
				job #0 exited 0 (Error)
				not PodReadyToStartContainers: PodSandboxNotReady: pod sandbox is not ready
				not Ready: PodCompleted
				not ContainersReady: PodCompleted`,
		},
		{
			name: "an end is final", pod: "Always web", observed: "sandbox web",
			edit: func(in *Input) { in.Previous.Phase = v1.PodFailed },
			want: `
				Failed
				web #0 running, ready
				not Ready: PodFailed
				not ContainersReady: PodFailed`,
		},
		{
			name: "evicted", pod: "Always web", observed: "sandbox! web=143",
			edit: func(in *Input) {
				in.Stop = Stopping{Terminating: true, Why: Reason{"Evicted", "memory"}}
			},
			want: `
				Failed Evicted: memory
				web #0 exited 143 (Error)
				not PodReadyToStartContainers: PodSandboxNotReady: pod sandbox is not ready
				not Ready: PodFailed
				not ContainersReady: PodFailed`,
		},
		{
			name: "evicted for a limit of its own", pod: "Never web", observed: "sandbox! web=0",
			edit: func(in *Input) {
				in.Stop = Stopping{Terminating: true, Why: Reason{"Evicted", "disk"}, OwnLimit: true}
			},
			want: `
				Failed Evicted: disk
				web #0 exited 0 (Error)
				not PodReadyToStartContainers: PodSandboxNotReady: pod sandbox is not ready
				not Ready: PodFailed
				not ContainersReady: PodFailed`,
		},
		{
			name: "made way for a critical pod, before it has stopped", pod: "Always web",
			observed: "sandbox web",
			edit: func(in *Input) {
				in.Stop = Stopping{Terminating: true, Why: Reason{podspec.ReasonPreempting, "m"}}
			},
			want: "Running Preempting: m\nweb #0 running, ready",
		},
		{
			name: "the node ends it, and its containers run on", pod: "Always web db",
			observed: "sandbox web db",
			edit:     func(in *Input) { in.Stop = Stopping{Terminating: true, Unready: true} },
			want: `
				Running
				db #0 running, ready
				web #0 running, ready
				not Ready: Terminating: the node ends the pod
				not ContainersReady: Terminating: the node ends the pod`,
		},
		{
			name: "the node ends it, and it was not ready", pod: "Always web db", observed: "sandbox web db=1",
			edit: func(in *Input) { in.Stop = Stopping{Terminating: true, Unready: true} },
			want: `
				Running
				db #0 exited 1 (Error)
				web #0 running, ready
				not Ready: ContainersNotReady: containers with unready status: [db]
				not ContainersReady: ContainersNotReady: containers with unready status: [db]`,
		},
		{
			name: "deleted before all ran", pod: "Always web db",
			edit: func(in *Input) { in.Stop = Stopping{Terminating: true, Finished: true} },
			want: `
				Failed
				db #0 exited 137 (ContainerStatusUnknown)
				web #0 exited 137 (ContainerStatusUnknown)
				not PodReadyToStartContainers: PodSandboxNotReady: no pod sandbox exists
				not Ready: PodFailed
				not ContainersReady: PodFailed`,
		},
		{
			name: "the runtime lost a container that ran", pod: "Always web", observed: "sandbox",
			edit: func(in *Input) {
				in.Previous = Generate(Input{
					Pod: in.Pod, Facts: Facts{Observed: observe("sandbox web")}, Now: t0,
				})
			},
			want: `
				Running
				web #1 waiting (ContainerCreating), before: exited 137 (ContainerStatusUnknown)
				not Ready: ContainersNotReady: containers with unready status: [web]
				not ContainersReady: ContainersNotReady: containers with unready status: [web]`,
		},
		{
			name: "a readiness gate that nobody opened", pod: "Always web", observed: "sandbox web",
			edit: func(in *Input) {
				in.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "g"}}
			},
			want: `
				Running
				web #0 running, ready
				not Ready: ReadinessGatesNotReady: ` +
				`corresponding condition of pod readiness gate "g" does not exist.`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: makePod(tc.pod), Facts: Facts{Observed: observe(tc.observed)}, Now: at(50)}
			if tc.edit != nil {
				tc.edit(&in)
			}
			want := strings.TrimPrefix(strings.ReplaceAll(tc.want, "\t", ""), "\n")
			if diff := cmp.Diff(want, story(Generate(in))); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// The status of a waiting pod has the host's address only if it had it before: the kubelet reports
// the address of admitted pods, and none of rejected ones.
func TestWaitingHasNoAddressYet(t *testing.T) {
	in := Input{Pod: &v1.Pod{}, Node: Node{HostIPs: []string{"192.0.2.1"}}}
	for _, had := range []string{"", "192.0.2.9"} {
		in.Previous.HostIP = had
		if s := Waiting(in, Reason{Reason: "x"}); s.HostIP != had {
			t.Errorf("it had %q and waits with %q", had, s.HostIP)
		}
		in.Pod.Status.HostIP = had
		if s := First(in); s.HostIP != had {
			t.Errorf("it had %q and begins with %q", had, s.HostIP)
		}
	}
}

func TestRejectedAndWaiting(t *testing.T) {
	in := Input{Pod: makePod("Always web"), Now: at(50), Node: Node{HostIPs: []string{"10.1.1.1"}}}
	rejected := Rejected(in, Reason{"OutOfcpu", "no CPU"})
	if got, want := story(rejected), "Failed OutOfcpu: Pod was rejected: no CPU"; got != want {
		t.Errorf("rejected: %q, want %q", got, want)
	}
	want := "Pending WaitingForDevices: plugin is away\nweb #0 waiting (ContainerCreating)"
	got := story(Waiting(in, Reason{"WaitingForDevices", "plugin is away"}))
	if !strings.HasPrefix(got, want) {
		t.Errorf("waiting: %q, want %q first", got, want)
	}
	if rejected.HostIP != "" || rejected.HostIPs != nil || rejected.QOSClass != v1.PodQOSBestEffort ||
		!rejected.StartTime.Time.Equal(at(50)) {
		t.Errorf("rejected: %+v", rejected)
	}
}

func TestContainerFields(t *testing.T) {
	observed := observe("sandbox web=1")
	observed.Containers[0].Exit.At = at(30).Add(999 * time.Millisecond)
	s := Generate(Input{
		Pod: makePod("Never web db"), Facts: Facts{Observed: observed}, Now: at(50),
		Node:     Node{Runtime: "containerd"},
		Messages: map[string]string{"web=1": strings.Repeat("é", messageBudget)},
	}).ContainerStatuses[1]
	end := s.State.Terminated
	if s.ContainerID != "containerd://web=1" || end.ContainerID != s.ContainerID ||
		s.ImageID != "img@sha" || *s.Started {
		t.Errorf("container %+v", s)
	}
	if !end.FinishedAt.Time.Equal(at(30)) {
		t.Errorf("finished at %v, want whole seconds", end.FinishedAt)
	}
	if n := len(end.Message); n != messageBudget/2 {
		t.Errorf("message of %d bytes, want %d", n, messageBudget/2)
	}
}

func TestWhatIsKept(t *testing.T) {
	pod := makePod("Always web")
	first := Generate(Input{Pod: pod, Facts: Facts{Observed: observe("sandbox")}, Now: at(50)})
	first.Conditions = append(first.Conditions, v1.PodCondition{Type: "theirs", Status: "True"})
	second := Generate(Input{
		Pod: pod, Facts: Facts{Observed: observe("sandbox! web=1")}, Previous: first, Now: at(60)})

	if !second.StartTime.Time.Equal(at(10)) {
		t.Errorf("start time %v, want that of the sandbox", second.StartTime)
	}
	if second.PodIP != "10.0.0.1" {
		t.Errorf("pod IP %q was not kept", second.PodIP)
	}
	changed := map[v1.PodConditionType]time.Time{}
	for _, c := range second.Conditions {
		changed[c.Type] = c.LastTransitionTime.Time
		if c.Type != "theirs" && c.ObservedGeneration != 3 {
			t.Errorf("%s of generation %d", c.Type, c.ObservedGeneration)
		}
	}
	if len(changed) != 6 || !changed[v1.PodScheduled].Equal(at(50)) ||
		!changed[v1.PodReadyToStartContainers].Equal(at(60)) {
		t.Errorf("conditions changed at %v", changed)
	}
}

// A pod that the node ends for its own reasons is disrupted, in the words of its status.
func TestReasonsOfDisruptions(t *testing.T) {
	for _, reason := range []string{podspec.ReasonEvicted, podspec.ReasonShutdown, podspec.ReasonDeviceFailed} {
		s := Generate(Input{Pod: makePod("Always web"), Facts: Facts{Observed: observe("sandbox! web=143")},
			Now: t0, Stop: Stopping{Terminating: true, Why: Reason{reason, "m"}}})
		if c := conditionOf(s, v1.DisruptionTarget); c == nil || c.Message != "m" || s.Reason != reason ||
			s.Phase != v1.PodFailed {
			t.Errorf("%s: %s, %s, condition %+v", reason, s.Phase, s.Reason, c)
		}
	}
}

// A preempted pod gets the condition once it has ended, and keeps it.
func TestDisrupted(t *testing.T) {
	in := Input{Pod: makePod("Always web"), Facts: Facts{Observed: observe("sandbox web")}, Now: t0,
		Stop: Stopping{Terminating: true, Why: Reason{podspec.ReasonPreempting, "m"}}}
	for i, want := range []bool{false, true, true} {
		if i > 0 {
			in.Observed = observe("sandbox! web=143")
		}
		if i > 1 {
			in.Stop.Why = Reason{}
		}
		in.Previous = Generate(in)
		if got := conditionOf(in.Previous, v1.DisruptionTarget) != nil; got != want {
			t.Errorf("%d: disrupted %t, want %t", i, got, want)
		}
	}
	count := 0
	for _, c := range in.Previous.Conditions {
		if c.Type == v1.DisruptionTarget {
			count++
		}
	}
	if count != 1 {
		t.Errorf("it says so %d times", count)
	}
}

// A pod that exceeded a limit of its own is not disrupted, also after a restart of the agent.
func TestOwnLimitIsNoDisruption(t *testing.T) {
	in := Input{Pod: makePod("Always web"), Facts: Facts{Observed: observe("sandbox! web=143")}, Now: t0,
		Stop: Stopping{Terminating: true, Why: Reason{podspec.ReasonEvicted, "m"}, OwnLimit: true}}
	for _, stop := range []Stopping{in.Stop, {Terminating: true}, {}} {
		in.Stop = stop
		in.Previous = Generate(in)
		if s := in.Previous; s.Phase != v1.PodFailed || s.Reason != podspec.ReasonEvicted ||
			conditionOf(s, v1.DisruptionTarget) != nil {
			t.Errorf("with %+v it says %+v", stop, s)
		}
	}
}

func TestHostNetwork(t *testing.T) {
	pod := makePod("Always web")
	pod.Spec.HostNetwork = true
	observed := observe("sandbox web")
	if got := SandboxProblem(pod, observed); !strings.HasPrefix(got, "network namespace mode") {
		t.Errorf("problem %q", got)
	}
	observed.Sandboxes[0].HostNetwork, observed.Sandboxes[0].IPs = true, nil
	s := Generate(Input{Pod: pod, Facts: Facts{Observed: observed}, Now: t0,
		Node: Node{HostIPs: []string{"10.1.1.1", "fd00::1"}}})
	if got := SandboxProblem(pod, observed); got != "" {
		t.Errorf("problem %q", got)
	}
	want := []v1.PodIP{{IP: "10.1.1.1"}, {IP: "fd00::1"}}
	if diff := cmp.Diff(want, s.PodIPs); diff != "" {
		t.Errorf("pod IPs (-want +got):\n%s", diff)
	}
}

// TestPodIPs: a pod has one address of each family, that of the node's primary family first. In the
// host's network it keeps its addresses, and gets those that the node gets.
func TestPodIPs(t *testing.T) {
	for _, test := range []struct{ sandbox, previous, node, want string }{
		{sandbox: "10.0.0.1", node: "10.1.1.1", want: "10.0.0.1"},
		{sandbox: "10.0.0.1 10.0.0.2", node: "10.1.1.1", want: "10.0.0.1"},
		{sandbox: "10.0.0.1 10.0.0.2 fd00::1", node: "fd00::9", want: "fd00::1 10.0.0.1"},
		{sandbox: "fd00::1 10.0.0.1", node: "10.1.1.1", want: "10.0.0.1 fd00::1"},
		{sandbox: "10.0.0.2", previous: "10.0.0.1", node: "10.1.1.1", want: "10.0.0.2"},
		{previous: "10.0.0.1", node: "10.1.1.1", want: "10.0.0.1"},
		{sandbox: "host", node: "10.1.1.1 fd00::9", want: "10.1.1.1 fd00::9"},
		{sandbox: "host", previous: "10.1.1.1", node: "10.1.1.2", want: "10.1.1.1"},
		{sandbox: "host", previous: "10.1.1.1", node: "10.1.1.2 fd00::9", want: "10.1.1.1 fd00::9"},
		{sandbox: "host", previous: "10.1.1.1", node: "fd00::9 10.1.1.2", want: "10.1.1.1 fd00::9"},
	} {
		pod, observed := makePod("Always web"), observe("sandbox web")
		observed.Sandboxes[0].IPs = strings.Fields(test.sandbox)
		if pod.Spec.HostNetwork = test.sandbox == "host"; pod.Spec.HostNetwork {
			observed.Sandboxes[0].HostNetwork, observed.Sandboxes[0].IPs = true, nil
		}
		in := Input{Pod: pod, Facts: Facts{Observed: observed}, Now: t0,
			Node: Node{HostIPs: strings.Fields(test.node)}}
		for _, ip := range strings.Fields(test.previous) {
			in.Previous.PodIPs = append(in.Previous.PodIPs, v1.PodIP{IP: ip})
		}
		s := Generate(in)
		got := strings.Join(addressesOf(s.PodIPs), " ")
		if primary, _, _ := strings.Cut(test.want, " "); got != test.want || s.PodIP != primary {
			t.Errorf("%+v: %q, first %q", test, got, s.PodIP)
		}
	}
}

// If an init container failed, containers whose turn never came stay waiting in the failed pod's
// status; a container whose turn came gets a lost end.
func TestContainersWithoutATurn(t *testing.T) {
	in := Input{Stop: Stopping{Terminating: true, Finished: true},
		Pod: podtest.New("", podtest.Line("Never first | main"))}
	in.Observed.Sandboxes = []cri.Sandbox{{ID: "s"}}
	for code, want := range map[int32]string{0: ReasonStatusUnknown, 4: ReasonPodInitializing} {
		in.Observed.Containers = []cri.Container{{ID: "1", Name: "first", SandboxID: "s",
			State: cri.ContainerExited, Exit: cri.Exit{Code: code, At: time.Unix(1, 0)}}}
		s := Generate(in)
		state, got := s.ContainerStatuses[0].State, ""
		if state.Waiting != nil {
			got = state.Waiting.Reason
		} else if state.Terminated != nil {
			got = state.Terminated.Reason
		}
		initialized := conditionOf(s, v1.PodInitialized).Status == v1.ConditionTrue
		if got != want || initialized != (code == 0) || s.Phase != v1.PodFailed {
			t.Errorf("after exit %d: %q, initialized %t, %s", code, got, initialized, s.Phase)
		}
	}
}
