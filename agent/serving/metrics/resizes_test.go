package metrics

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/podtest"
)

// Resizes are counted by the conditions of pods, until the pods are forgotten.
func TestResizes(t *testing.T) {
	m, registry := fresh(t)
	saying := func(conditions ...v1.PodCondition) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodRunning, Conditions: conditions}
	}
	pending := func(reason string) v1.PodCondition {
		return v1.PodCondition{Type: v1.PodResizePending, Reason: reason}
	}
	progress := v1.PodCondition{Type: v1.PodResizeInProgress}
	pod, high := testPod(), podtest.New("high", podtest.Priority(100000))
	last := map[*v1.Pod]v1.PodStatus{}
	change := func(of *v1.Pod, after v1.PodStatus) {
		m.Status(podstatus.Change{Pod: of, Before: last[of], After: after})
		last[of] = after
	}
	expect := func(what, want string) {
		t.Helper()
		const name = "kubelet_pod_"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name+"pending_resizes",
			name+"in_progress_resizes", name+"infeasible_resizes_total"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	const heads = `# HELP kubelet_pod_in_progress_resizes [ALPHA] Pods that were allocated other resources, and do not have them all yet.
# TYPE kubelet_pod_in_progress_resizes gauge
`
	const pendings = `# HELP kubelet_pod_pending_resizes [ALPHA] Pods that do not get the resources that they ask for, by reason and priority.
# TYPE kubelet_pod_pending_resizes gauge
`
	change(pod, saying(pending(v1.PodReasonDeferred)))
	change(high, saying(pending(v1.PodReasonDeferred), progress))
	expect("two wait", heads+"kubelet_pod_in_progress_resizes 1\n"+pendings+
		`kubelet_pod_pending_resizes{priority_bucket="high",reason="deferred"} 1
kubelet_pod_pending_resizes{priority_bucket="normal",reason="deferred"} 1
`)
	change(pod, saying(pending(v1.PodReasonInfeasible)))
	change(high, saying(progress))
	for range 2 {
		m.Decided(report.Result{Pod: pod, Outcome: decide.NotResized, Rule: "swap_limitation"})
		m.Decided(report.Result{Pod: pod, Outcome: decide.NotResized, Rule: "swap_limitation", Reworded: true})
	}
	expect("one cannot be", heads+"kubelet_pod_in_progress_resizes 1\n"+pendings+
		`kubelet_pod_pending_resizes{priority_bucket="high",reason="deferred"} 0
kubelet_pod_pending_resizes{priority_bucket="normal",reason="deferred"} 0
kubelet_pod_pending_resizes{priority_bucket="normal",reason="infeasible"} 1
# HELP kubelet_pod_infeasible_resizes_total [ALPHA] Resizes that the node does not do, by the rule that forbids them.
# TYPE kubelet_pod_infeasible_resizes_total counter
kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"} 2
`)
	change(pod, v1.PodStatus{})
	change(high, v1.PodStatus{})
	expect("they are forgotten", heads+"kubelet_pod_in_progress_resizes 0\n"+pendings+
		`kubelet_pod_pending_resizes{priority_bucket="high",reason="deferred"} 0
kubelet_pod_pending_resizes{priority_bucket="normal",reason="deferred"} 0
kubelet_pod_pending_resizes{priority_bucket="normal",reason="infeasible"} 0
# HELP kubelet_pod_infeasible_resizes_total [ALPHA] Resizes that the node does not do, by the rule that forbids them.
# TYPE kubelet_pod_infeasible_resizes_total counter
kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"} 2
`)
	for priority, want := range map[int32]string{2_000_000_000: "system-critical", 100_000: "high", 1: "medium",
		0: "normal", -1: "low", -999: "low", -1000: "very-low"} {
		if got := priorityBucket(podtest.New("p", podtest.Priority(priority))); got != want {
			t.Errorf("a priority of %d is %s, want %s", priority, got, want)
		}
	}
}
