package podworker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/status"
)

var (
	dead   = status.Probed{Startup: status.Passes, Liveness: status.Fails}
	unborn = status.Probed{Startup: status.Fails}
	born   = status.Probed{Startup: status.Passes}
)

func withProbes(c *v1.Container, grace *int64) {
	c.StartupProbe = &v1.Probe{}
	c.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: grace}
}

// A container that its probes find dead is stopped within the probe's own grace period, and started
// again when its back-off is over, also if it exits with 0; under Never it stays stopped.
func TestProbed(t *testing.T) {
	tell(t, []story{
		{
			name: "dead, with a grace period of its own",
			pod:  "OnFailure web db",
			play: func(w *world) {
				withProbes(&w.pod.Spec.Containers[0], ptr.To[int64](7))
				w.obeys = 0
				w.until(time.Second)
				w.probed["c2"] = dead
				w.until(time.Minute)
				w.probed["c4"] = dead
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				1s SyncPod: StopContainers web c2 in 7s
				1s SyncPod: StartContainer web #1
				1m0s SyncPod: StopContainers web c4 in 7s
				1m10s SyncPod: StartContainer web #2
				1m10s SyncPod: RemoveContainers c2`,
		},
		{
			name: "never started, under Never",
			pod:  "Never web",
			play: func(w *world) {
				withProbes(&w.pod.Spec.Containers[0], nil)
				w.until(time.Second)
				w.probed["c2"] = unborn
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s SyncPod: StopContainers web c2 in 30s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "what follows a sidecar waits until that has started",
			pod:  "Always side~ | web",
			play: func(w *world) {
				withProbes(&w.pod.Spec.InitContainers[0], nil)
				w.until(time.Second)
				w.probed["c2"] = unborn
				w.until(2 * time.Second)
				w.probed["c3"] = born
				w.until(3 * time.Second)
				w.probed["c3"] = dead
				w.until(time.Minute)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer side #0
				1s SyncPod: StopContainers side c2 in 30s
				1s SyncPod: StartContainer side #1
				2s SyncPod: StartContainer web #0
				3s SyncPod: StopContainers side c3 in 30s
				13s SyncPod: StartContainer side #2
				13s SyncPod: RemoveContainers c2`,
		},
		{
			name: "a pod that ends does not look at its probes",
			pod:  "Always web",
			play: func(w *world) {
				withProbes(&w.pod.Spec.Containers[0], nil)
				w.until(time.Second)
				w.probed["c2"] = dead
				w.want.Stop = &Stop{Grace: 5 * time.Second}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c2 in 5s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
	})
}

// A container with a failed device is stopped once, and started again as one that a probe found dead;
// under Never it stays stopped. An init container that has yet to succeed is run again.
func TestFailed(t *testing.T) {
	tell(t, []story{
		{
			name: "a container",
			pod:  "OnFailure web db",
			play: func(w *world) {
				w.obeys = 0
				w.until(time.Second)
				w.failed["c2"] = "has a failed device"
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				1s SyncPod: StopContainers web c2 in 30s
				1s SyncPod: StartContainer web #1`,
		},
		{
			name: "under Never",
			pod:  "Never web",
			play: func(w *world) {
				w.until(time.Second)
				w.failed["c2"] = "has a failed device"
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s SyncPod: StopContainers web c2 in 30s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "an init container",
			pod:  "Always init | web",
			play: func(w *world) {
				w.until(time.Second)
				w.failed["c2"] = "has a failed device"
				w.until(time.Minute)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer init #0
				1s SyncPod: StopContainers init c2 in 30s
				1s SyncPod: StartContainer init #1`,
		},
	})
	c := &v1.Container{Name: "c"}
	for want, policy := range map[string]v1.RestartPolicy{
		"Container c has a failed device, will be restarted": v1.RestartPolicyAlways,
		"Container c has a failed device":                    v1.RestartPolicyNever,
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy}}
		if got, _ := restarts(pod, c, "has a failed device", false); got != want {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
	}
}

// The words are the kubelet's.
func TestProbeFailed(t *testing.T) {
	own := ptr.To(v1.ContainerRestartPolicyNever)
	for _, tc := range []struct {
		policy v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		found  status.Probed
		init   bool
		want   string
		again  Again
	}{
		{v1.RestartPolicyAlways, nil, dead, false,
			"Container c failed liveness probe, will be restarted", AgainLater},
		{v1.RestartPolicyOnFailure, nil, unborn, false,
			"Container c failed startup probe, will be restarted", AgainLater},
		{v1.RestartPolicyNever, nil, dead, false, "Container c failed liveness probe", NotAgain},
		{v1.RestartPolicyAlways, own, dead, false, "Container c failed liveness probe", NotAgain},
		{v1.RestartPolicyNever, nil, unborn, true, "Init container c failed startup probe", AgainLater},
	} {
		c := &v1.Container{Name: "c", RestartPolicy: tc.own,
			LivenessProbe: &v1.Probe{}, StartupProbe: &v1.Probe{}}
		kind, probe := failedProbe(c, tc.found)
		got, again := probeFailed(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: tc.policy}}, c, kind, tc.init)
		if got != tc.want || again != tc.again || probe == nil {
			t.Errorf("%q, %v, want %q, %v", got, again, tc.want, tc.again)
		}
	}
}

// What probes find while the worker waits for a container to end is told, and takes nothing else back.
func TestProbedDuringAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = 30 * time.Second
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.finds("a", "c2", status.Probed{Readiness: status.Passes})
		n.at(time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute}})
		n.at(2 * time.Second)
		n.finds("a", "c2", status.Probed{Readiness: status.Fails})
		n.at(3 * time.Second)
		r := n.reports["a"]
		if r.Probed["c2"].Readiness != status.Fails || r.Decision.State != TerminatingPod ||
			r.Decision.Action == nil || !r.Observed.Running() {
			t.Errorf("during the stop it reports %+v", r)
		}
		n.at(time.Minute)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer web #0",
			"31s a: StopContainers c2 in 1m0s",
			"31s a: StopSandboxes s1",
			"31s a: CleanUp")
	})
}
