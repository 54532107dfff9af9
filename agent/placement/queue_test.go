package placement

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// configured is the configuration of a node with these flags.
func configured(t *testing.T, flags ...string) *config.Config {
	t.Helper()
	cfg, err := config.FromArgs(append(flags, "--topology-from=fixture:laptop", "--root-dir="+t.TempDir(),
		"--hostname-override=node"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// told are events, of pods and of the node.
type told struct {
	node.Events
	of []string
}

func (e *told) Pod(pod *v1.Pod, _, reason, _ string) { e.of = append(e.of, pod.Name+" "+reason) }

func (e *told) OnNode(_, reason, message string) { e.of = append(e.of, reason+" "+message) }

// What admission finds is told by events and to the floor above. What may be stale is read again: the node's object
// or the machine.
func TestQueueTells(t *testing.T) {
	identity, err := node.Identify(configured(t))
	if err != nil {
		t.Fatal(err)
	}
	var events told
	var heard []string
	c := QueueConfig{
		Node:    node.Node{Identity: identity, Events: &events},
		Reread:  func(context.Context) { heard = append(heard, "the node was reread") },
		Decided: func(r report.Result) { heard = append(heard, "decided on "+r.Pod.Name) },
		Preempt: func(of report.Preemption, reason, _ string) {
			heard = append(heard, "preempted "+of.Victim.Name+" "+reason)
		},
		State:  func() nodestatus.State { return nodestatus.State{ShuttingDown: true} },
		Claims: claims.Admission{},
	}.admission()
	if !c.State().ShuttingDown || c.Claims == nil {
		t.Error("the node's state or its claims do not count")
	}
	c.Report(report.Result{Pod: podtest.New("p"), Lack: decide.Lack{Reason: "FailedMount", Why: "no secret"}})
	c.Preempt(report.Preemption{Victim: podtest.New("v"), Critical: podtest.New("c")})
	c.Reread(t.Context(), decide.StaleMachine)
	heard = append(heard, "the machine was reread")
	c.Reread(t.Context(), decide.StaleNode)
	if want := []string{"p FailedMount", "v " + podspec.ReasonPreempting}; !slices.Equal(events.of, want) {
		t.Errorf("events are %q, want %q", events.of, want)
	}
	want := []string{"decided on p", "preempted v " + podspec.ReasonPreempting, "the machine was reread",
		"the node was reread"}
	if !slices.Equal(heard, want) {
		t.Errorf("heard was %q, want %q", heard, want)
	}
}

// Without an agent pods are decided on as the settings say, and no ability of a host is missed.
func TestOffline(t *testing.T) {
	const static, memory, preempts = "guaranteed_pod_cpu_manager_static_policy",
		"guaranteed_pod_memory_manager_static_policy", "InPlacePodVerticalScalingSchedulerPreemption"
	gates := "--feature-gates=InPlacePodVerticalScalingExclusiveCPUs=false,InPlacePodVerticalScalingExclusiveMemory=false"
	has, cpus, bytes := podtest.New("p", podtest.Guaranteed("main cpu=1")),
		podtest.New("p", podtest.Guaranteed("main cpu=2")),
		podtest.New("p", podtest.Guaranteed("main cpu=1 memory=2Gi"))
	for _, tt := range []struct {
		flags       []string
		cpus, bytes string // why a resize of them is infeasible
		preempts    bool
	}{
		{flags: []string{gates}, preempts: true},
		{flags: []string{gates, "--cpu-manager-policy=static", "--reserved-cpus=0"}, cpus: static, preempts: true},
		{flags: []string{gates, "--memory-manager-policy=Static", "--reserved-memory=0:memory=1124Mi",
			"--kube-reserved=memory=1Gi"}, bytes: memory, preempts: true},
		{flags: []string{gates + "," + preempts + "=true"}},
	} {
		s, err := Offline(configured(t, tt.flags...), devicemanager.Inventory{}, allocation.State{})
		if err != nil {
			t.Fatal(err)
		}
		for wants, why := range map[*v1.Pod]string{cpus: tt.cpus, bytes: tt.bytes} {
			if got := ptr.Deref(s.ResizeRule(has, wants), decide.Resizing{}); got.Rule != why {
				t.Errorf("%q: the resize is infeasible by %q, want %q", tt.flags, got.Rule, why)
			}
		}
		if s.ResizePreempts != tt.preempts {
			t.Errorf("%q: a resize preempts: %t", tt.flags, s.ResizePreempts)
		}
		strict := podtest.New("p")
		strict.Spec.SecurityContext = &v1.PodSecurityContext{
			SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict),
			AppArmorProfile:          &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
		}
		if d := s.DryRun(strict, allocation.PodClaims{}, nil); d.Outcome != decide.Admit {
			t.Errorf("%q: a pod is refused: %s %s", tt.flags, d.Reason, d.Message)
		}
	}
}
