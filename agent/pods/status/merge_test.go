package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// The API server should have the node's status together with what others wrote.
func TestMerge(t *testing.T) {
	early := metav1.NewTime(time.Unix(1000, 0))
	late := metav1.NewTime(time.Unix(2000, 0))
	condition := func(t v1.PodConditionType, s v1.ConditionStatus, at metav1.Time,
	) v1.PodCondition {
		return v1.PodCondition{Type: t, Status: s, LastTransitionTime: at}
	}
	disrupted := func(reason string) v1.PodCondition {
		return v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: reason}
	}
	conditions := func(c ...v1.PodCondition) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodRunning, Conditions: c}
	}
	for name, test := range map[string]struct{ api, own, want v1.PodStatus }{
		"others' conditions, claims and resizes stay": {
			api: v1.PodStatus{Resize: v1.PodResizeStatusDeferred, NominatedNodeName: "n",
				ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "c"}},
				Conditions: []v1.PodCondition{
					condition("example.com/gate", v1.ConditionTrue, early),
					condition(v1.DisruptionTarget, v1.ConditionTrue, early)}},
			own: conditions(condition("example.com/gate", v1.ConditionFalse, late)),
			want: v1.PodStatus{Phase: v1.PodRunning, Resize: v1.PodResizeStatusDeferred,
				NominatedNodeName:     "n",
				ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "c"}},
				Conditions: []v1.PodCondition{
					condition("example.com/gate", v1.ConditionTrue, early),
					condition(v1.DisruptionTarget, v1.ConditionTrue, early)}},
		},
		"a condition of others that is gone is gone": {
			api: v1.PodStatus{}, own: conditions(condition("x", v1.ConditionTrue, late)),
			want: conditions(),
		},
		"a condition keeps its time until it changes": {
			api: conditions(condition(v1.PodReady, v1.ConditionTrue, early),
				condition(v1.PodScheduled, v1.ConditionFalse, early)),
			own: conditions(condition(v1.PodReady, v1.ConditionTrue, late),
				condition(v1.PodScheduled, v1.ConditionTrue, late)),
			want: conditions(condition(v1.PodReady, v1.ConditionTrue, early),
				condition(v1.PodScheduled, v1.ConditionTrue, late)),
		},
		"an end stays, with its reason": {
			api:  v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost", Message: "m"},
			own:  v1.PodStatus{Phase: v1.PodRunning, Reason: "x"},
			want: v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost", Message: "m"},
		},
		"an end is not another end": {
			api:  v1.PodStatus{Phase: v1.PodFailed},
			own:  v1.PodStatus{Phase: v1.PodSucceeded, Reason: "x"},
			want: v1.PodStatus{Phase: v1.PodFailed, Reason: "x"},
		},
		"the start is told once": {
			api: v1.PodStatus{StartTime: &early}, own: v1.PodStatus{StartTime: &late},
			want: v1.PodStatus{StartTime: &early},
		},
		"the node's disruption is not told before the end": {
			api:  conditions(disrupted("EvictionByEvictionAPI")),
			own:  conditions(disrupted("TerminationByKubelet")),
			want: conditions(disrupted("EvictionByEvictionAPI")),
		},
		"the node's disruption is told at the end": {
			api: conditions(disrupted("EvictionByEvictionAPI")),
			own: v1.PodStatus{Phase: v1.PodFailed,
				Conditions: []v1.PodCondition{disrupted("TerminationByKubelet")}},
			want: v1.PodStatus{Phase: v1.PodFailed,
				Conditions: []v1.PodCondition{disrupted("TerminationByKubelet")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Merge(test.api, test.own)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(got, Merge(got, test.own)); diff != "" {
				t.Errorf("a second merge changes what the first one made:\n%s", diff)
			}
		})
	}
}

// The first status of a pod with a status in the API server is that status. It does not claim that
// the containers are lost, since nothing has been observed yet.
func TestFirst(t *testing.T) {
	pod := podtest.New("", podtest.Containers("main"))
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &metav1.Time{Time: time.Unix(1000, 0)},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", RestartCount: 3,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
	}
	if diff := cmp.Diff(pod.Status, First(Input{Pod: pod, Now: time.Now()})); diff != "" {
		t.Errorf("-told +first:\n%s", diff)
	}
	static := &v1.Pod{Spec: pod.Spec} // its manifest has no status, an earlier run of the agent had
	if diff := cmp.Diff(pod.Status, First(Input{Pod: static, Previous: pod.Status, Now: time.Now()})); diff != "" {
		t.Errorf("-kept +first:\n%s", diff)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: "x"}}}
	got := First(Input{Pod: pod, Now: time.Now()})
	if got.Phase != v1.PodPending || got.StartTime == nil || conditionOf(got, "x") == nil ||
		conditionOf(got, v1.PodScheduled) == nil {
		t.Errorf("the first status of a new pod is %+v", got)
	}
}

// A condition also says why a pod waits, and a rejected pod keeps others' conditions.
func TestWhyThePodDoesNotStart(t *testing.T) {
	in := Input{Pod: podtest.New("", podtest.Containers("main")),
		Now: time.Now(), Previous: v1.PodStatus{Conditions: []v1.PodCondition{{Type: "x"}}}}
	why := Reason{Reason: "WaitingForDevicePlugin", Message: "none has registered"}
	s := Waiting(in, why)
	c, scheduled := conditionOf(s, v1.PodReadyToStartContainers), conditionOf(s, v1.PodScheduled)
	if c == nil || c.Status != v1.ConditionFalse || c.Reason != why.Reason ||
		c.Message != why.Message || scheduled == nil || scheduled.Status != v1.ConditionTrue {
		t.Errorf("a pod that waits has conditions %+v", s.Conditions)
	}
	in.Previous = s
	s = Rejected(in, why)
	if conditionOf(s, "x") == nil || conditionOf(s, v1.PodReadyToStartContainers) != nil {
		t.Errorf("a pod that is rejected has conditions %+v", s.Conditions)
	}
}
