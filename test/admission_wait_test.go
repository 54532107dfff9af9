package test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// terminating runs a pod that has cpus of the 63 assignable CPUs and stops slowly, and removes it.
func terminating(n *harness.Node, name string, cpus, seconds int) {
	n.Pod(name, manifestOf(name, fmt.Sprintf(`terminationGracePeriodSeconds: %d
  containers: [{name: main, image: sim.local/app, resources: {limits: {cpu: %d, memory: 1Gi}}}]`,
		seconds, cpus), "main: term=ignore"))
	n.AwaitPhase(name+"-node", v1.PodRunning)
	n.RemovePod(name)
	n.Eventually("pod "+name+" terminates", func() error {
		if len(calls(n, call{method: "StopContainer", pod: name + "-node"})) > 0 {
			return nil
		}
		return fmt.Errorf("no container of it was stopped")
	})
}

func awaitWaiting(n *harness.Node, pod, reason string) {
	n.Eventually("pod "+pod+" waits", func() error {
		pods, err := n.Pods()
		if s := pods[pod].Status; err == nil && (s.Phase != v1.PodPending || s.Reason != reason) {
			err = fmt.Errorf("its status is %s %s: %s", s.Phase, s.Reason, s.Message)
		}
		return err
	})
}

// A big pod that waits for a terminating one gets its CPUs, even if small pods come in meanwhile.
// Small pods that need nothing of the big pod's claim run at once.
func TestABigPodWaitsWhileSmallOnesRun(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	terminating(n, "old", 40, 5)
	n.Pod("big", limited("big", "cpu: 60, memory: 1Gi"))
	awaitWaiting(n, "big-node", "WaitingForResources")
	for i := range 3 {
		name := fmt.Sprint("small-", i)
		n.Pod(name, limited(name, "cpu: 1, memory: 1Gi"))
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	n.Pod("late", limited("late", "cpu: 1, memory: 1Gi"))
	if s := n.AwaitPhase("late-node", v1.PodFailed).Status; s.Reason != "UnexpectedAdmissionError" {
		t.Errorf("the pod for which nothing is left: %s: %s", s.Reason, s.Message)
	}
	n.AwaitPhase("big-node", v1.PodRunning)
}

// At the deadline, or at once if there is none, the pod is rejected with the kubelet's reason.
func TestTheWaitEnds(t *testing.T) {
	t.Parallel()
	for _, wait := range []string{"0", "1s"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			n.Args = append(n.Args, "--device-admission-wait="+wait)
			n.Start()
			terminating(n, "old", 40, 3600)
			n.Pod("big", limited("big", "cpu: 60, memory: 1Gi"))
			s := n.AwaitPhase("big-node", v1.PodFailed).Status
			const want = "Pod was rejected: Allocate failed due to not enough cpus available to " +
				"satisfy request: requested=60, available=23, which is unexpected"
			if s.Reason != "UnexpectedAdmissionError" || s.Message != want {
				t.Errorf("said %s: %s\nwant %s", s.Reason, s.Message, want)
			}
		})
	}
}
