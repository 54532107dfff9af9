package status

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// restartsAllAt adds a rule that restarts all containers when c exits with a code.
func restartsAllAt(c *v1.Container, code int32) {
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
	}}
}

// Only the last exit of a container counts, and its first rule that matches.
func TestRestartAll(t *testing.T) {
	for observed, want := range map[string]string{
		"sandbox web db":                  "",
		"sandbox web=42 db":               "web",
		"sandbox web=1 db init=0":         "",
		"sandbox web web=42 db":           "",
		"sandbox web=42 db=42 init=42":    "init web",
		"sandbox sandbox! web=42 db=1":    "web",
		"sandbox web- web=42":             "",
		"sandbox web=7":                   "",
		"sandbox stranger=42 web db side": "",
	} {
		pod := makePod("Never init side~ | web db")
		restartsAllAt(&pod.Spec.InitContainers[0], 42)
		web := &pod.Spec.Containers[0]
		restartsAllAt(web, 42)
		web.RestartPolicyRules = slices.Insert(web.RestartPolicyRules, 0, v1.ContainerRestartRule{
			Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7}}})
		web.RestartPolicyRules[1].ExitCodes.Values = []int32{7, 42}
		got := strings.Join(sets.List(RestartAll(pod, observe(observed))), " ")
		if got != want {
			t.Errorf("%s: %q, want %q", observed, got, want)
		}
	}
}

// The statuses of a pod whose containers are all restarted.
func TestRestartingAll(t *testing.T) {
	pod := makePod("Never init | web db")
	restartsAllAt(&pod.Spec.Containers[0], 42)
	var s v1.PodStatus
	for _, tc := range []struct{ observed, want string }{
		{"sandbox web db init=0", `
			Running
			init #0 exited 0 (Error), ready
			db #0 running, ready
			web #0 running, ready
			not AllContainersRestarting: `},
		{"sandbox web=42 db init=0", `
			Running
			init #0 exited 0 (Error), ready
			db #0 running, ready
			web #0 exited 42 (Error)
			not Ready: ContainersNotReady: containers with unready status: [web]
			not ContainersReady: ContainersNotReady: containers with unready status: [web]`},
		{"sandbox web=42", `
			Running
			init #1 waiting (RestartingAllContainers) The container is removed because ` +
			`RestartAllContainers in place, before: exited 137 (RestartingAllContainers)
			db #1 waiting (RestartingAllContainers) The container is removed because ` +
			`RestartAllContainers in place, before: exited 137 (RestartingAllContainers)
			web #0 exited 42 (Error)
			not Ready: ContainersNotReady: containers with unready status: [web db]
			not ContainersReady: ContainersNotReady: containers with unready status: [web db]`},
		{"sandbox", `
			Running
			init #1 waiting (PodInitializing), before: exited 137 (RestartingAllContainers)
			db #1 waiting (PodInitializing), before: exited 137 (RestartingAllContainers)
			web #1 waiting (RestartingAllContainers) The container is removed because ` +
			`RestartAllContainers in place, before: exited 137 (RestartingAllContainers)
			not Ready: ContainersNotReady: containers with unready status: [web db]
			not ContainersReady: ContainersNotReady: containers with unready status: [web db]
			not AllContainersRestarting: `},
		{"sandbox init", `
			Pending
			init #1 running, before: exited 137 (RestartingAllContainers), started
			db #1 waiting (PodInitializing), before: exited 137 (RestartingAllContainers)
			web #1 waiting (PodInitializing), before: exited 137 (RestartingAllContainers)
			not Ready: ContainersNotReady: containers with unready status: [web db]
			not ContainersReady: ContainersNotReady: containers with unready status: [web db]
			not AllContainersRestarting: `},
		{"sandbox web db init=0", `
			Running
			init #1 exited 0 (Error), before: exited 137 (RestartingAllContainers), ready
			db #1 running, before: exited 137 (RestartingAllContainers), ready
			web #1 running, before: exited 137 (RestartingAllContainers), ready
			not AllContainersRestarting: `},
		{"sandbox! web=3 db=0 init=0", `
			Failed
			init #1 exited 0 (Error), before: exited 137 (RestartingAllContainers), ready
			db #1 exited 0 (Error), before: exited 137 (RestartingAllContainers)
			web #1 exited 3 (Error), before: exited 137 (RestartingAllContainers)
			not PodReadyToStartContainers: PodSandboxNotReady: pod sandbox is not ready
			not Ready: PodFailed
			not ContainersReady: PodFailed
			not AllContainersRestarting: PodFailed`},
	} {
		observed := observe(tc.observed)
		for i := range observed.Containers { // the next containers are others
			c := &observed.Containers[i]
			for _, reported := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
				for _, was := range reported {
					if was.Name == c.Name && was.RestartCount > 0 {
						c.ID, c.Attempt = c.ID+"'", uint32(was.RestartCount)
					}
				}
			}
		}
		s = Generate(Input{Pod: pod, Facts: Facts{Observed: observed}, Previous: s, Now: t0})
		want := strings.ReplaceAll(strings.TrimPrefix(tc.want, "\n"), "\t", "")
		if diff := cmp.Diff(want, story(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.observed, diff)
		}
	}
}

// The next attempt is one more than the last; a lost attempt was counted when it was reported.
func TestAttempt(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	ended := func(reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason}}
	}
	for _, tc := range []struct {
		state, last v1.ContainerState
		count       int32
		want        uint32
	}{
		{waits, v1.ContainerState{}, 0, 0},
		{running, v1.ContainerState{}, 0, 1},
		{ended("Error"), v1.ContainerState{}, 4, 5},
		{waits, ended("Error"), 4, 5},
		{waits, ended(ReasonStatusUnknown), 4, 4},
		{waits, ended(reasonRestartingAll), 4, 4},
	} {
		s := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "c", State: tc.state,
			LastTerminationState: tc.last, RestartCount: tc.count}}}
		if got := Attempt(s, "c"); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc, got, tc.want)
		}
		if got := Attempt(s, "other"); got != 0 {
			t.Errorf("one that nothing is known of: %d", got)
		}
	}
}
