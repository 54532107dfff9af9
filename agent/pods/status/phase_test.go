package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

func TestPhase(t *testing.T) {
	for _, tc := range []struct {
		pod, observed string
		waiting       string
		want          v1.PodPhase
	}{
		{pod: "Always web", want: v1.PodPending},
		{pod: "Always web", observed: "sandbox", want: v1.PodPending},
		{pod: "Always web", observed: "sandbox web-", want: v1.PodPending},
		{pod: "Always web", observed: "sandbox web", want: v1.PodRunning},
		{pod: "Always web", observed: "sandbox web?", want: v1.PodRunning},
		{pod: "Always web db", observed: "sandbox web", want: v1.PodPending},
		{pod: "Always web", observed: "sandbox web=0", want: v1.PodRunning},
		{pod: "Always web", observed: "sandbox! web=1", want: v1.PodRunning},
		{pod: "OnFailure web", observed: "sandbox web=1", want: v1.PodRunning},
		{pod: "OnFailure web", observed: "sandbox web=0", want: v1.PodSucceeded},
		{pod: "OnFailure web", observed: "sandbox web=0 web=1", want: v1.PodSucceeded},
		{pod: "OnFailure web", observed: "sandbox web- web=0", want: v1.PodSucceeded},
		{pod: "OnFailure web db", observed: "sandbox db web=0", want: v1.PodRunning},
		{pod: "Never web db", observed: "sandbox db=2 web=0", want: v1.PodFailed},
		{pod: "Never web db", observed: "sandbox db=0 web=0", want: v1.PodSucceeded},
		{pod: "Never web", observed: "sandbox web=143", waiting: "web", want: v1.PodRunning},

		{pod: "Always init | web", observed: "sandbox init", want: v1.PodPending},
		{pod: "Always init | web", observed: "sandbox init=1", want: v1.PodPending},
		{pod: "Never init | web", observed: "sandbox init=1", want: v1.PodFailed},
		{pod: "Never init | web", observed: "sandbox init init=1", want: v1.PodPending},
		{pod: "Never init | web", observed: "sandbox init=0", want: v1.PodPending},
		{pod: "Never init | web", observed: "sandbox web init=0", want: v1.PodRunning},
		{pod: "Never init | web", observed: "sandbox web", want: v1.PodRunning},
		// The runtime's reason beside the exit code counts only for init containers.
		{pod: "Always init | web", observed: "sandbox init=oom", want: v1.PodPending},
		{pod: "OnFailure init | web", observed: "sandbox init=oom", want: v1.PodPending},
		{pod: "Never init | web", observed: "sandbox init=oom", want: v1.PodFailed},
		{pod: "Never init two | web", observed: "sandbox two=0 init=oom", want: v1.PodPending},
		{pod: "Never init | web", observed: "sandbox web=oom init=oom", want: v1.PodSucceeded},
		{pod: "OnFailure web", observed: "sandbox web=oom", want: v1.PodSucceeded},

		// A new sandbox runs init containers again.
		{
			pod: "Always init | web", observed: "sandbox sandbox! web=137 init=0",
			want: v1.PodPending,
		},
		{pod: "Always init | web", observed: "sandbox init=0 sandbox! web=1", want: v1.PodRunning},

		// Unless none of the regular containers will run again.
		{
			pod:      "Never side~ | web",
			observed: "sandbox web- side=143 sandbox! web=143 side=143", want: v1.PodFailed,
		},
		{
			pod:      "Never side~ | web",
			observed: "sandbox side=143 sandbox! web=143 side=143", waiting: "web", want: v1.PodPending,
		},
		{
			pod: "Never init | web", observed: "sandbox sandbox! web=0 init=0",
			want: v1.PodSucceeded,
		},

		// A sidecar counts until it has started, and does not keep the pod from ending.
		{pod: "Always side~ | web", observed: "sandbox side=1", want: v1.PodPending},
		{pod: "Always side~ | web", observed: "sandbox web side=1", want: v1.PodRunning},
		{pod: "Never side~ | web", observed: "sandbox web=0 side", want: v1.PodSucceeded},

		// With Never, after the loss of the sandbox, containers that have not run never will.
		{pod: "Never one two | web", observed: "sandbox! one=0", want: v1.PodFailed},
		{pod: "Never web db", observed: "sandbox! web=0", want: v1.PodFailed},
		{pod: "OnFailure web db", observed: "sandbox! web=0", want: v1.PodPending},
		{pod: "Never web", observed: "sandbox!", want: v1.PodPending},
	} {
		waiting := map[string]Reason{}
		if tc.waiting != "" {
			waiting[tc.waiting] = Reason{}
		}
		got := Phase(makePod(tc.pod), Facts{Observed: observe(tc.observed), Waiting: waiting})
		if got != tc.want {
			t.Errorf("%s; %s: %s, want %s", tc.pod, tc.observed, got, tc.want)
		}
	}
}

func TestRestarts(t *testing.T) {
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, code int32) v1.Container {
		return v1.Container{RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: op, Values: []int32{code}},
		}}}
	}
	own := func(p v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{RestartPolicy: &p}
	}
	for _, tc := range []struct {
		policy    v1.RestartPolicy
		container v1.Container
		zero, one bool // restarts after exit code 0, 1
		// killed: it restarts as an init container after exit code 0 if one of its processes was killed.
		killed bool
	}{
		{v1.RestartPolicyAlways, v1.Container{}, true, true, true},
		{v1.RestartPolicyOnFailure, v1.Container{}, false, true, true},
		{v1.RestartPolicyNever, v1.Container{}, false, false, false},
		{v1.RestartPolicyNever, own(v1.ContainerRestartPolicyOnFailure), false, true, true},
		{v1.RestartPolicyAlways, own(v1.ContainerRestartPolicyNever), false, false, false},
		{v1.RestartPolicyNever, rule(v1.ContainerRestartRuleOnExitCodesOpIn, 1), false, true, false},
		{v1.RestartPolicyNever, rule(v1.ContainerRestartRuleOnExitCodesOpNotIn, 1),
			true, false, true},
		{v1.RestartPolicyOnFailure, rule(v1.ContainerRestartRuleOnExitCodesOpIn, 0),
			true, true, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tc.policy}}
		for code, want := range []bool{tc.zero, tc.one} {
			if got := podspec.Restarts(pod, &tc.container, int32(code)); got != want {
				t.Errorf("%+v: restarts after %d: %v, want %v", tc, code, got, want)
			}
		}
		for _, init := range []struct {
			exit cri.Exit
			want bool
		}{
			{cri.Exit{Reason: "Completed"}, false}, {cri.Exit{Reason: "Error", Code: 1}, tc.one},
			{cri.Exit{Reason: "OOMKilled"}, tc.killed},
		} {
			if got := RestartsInit(pod, &tc.container, init.exit); got != init.want {
				t.Errorf("%+v: an init container restarts after %+v: %v", tc, init.exit, got)
			}
		}
	}
}
