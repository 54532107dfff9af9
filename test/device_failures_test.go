package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// failingNode has four GPUs, and a policy for those that fail.
func failingNode(t *testing.T, args ...string) (*harness.Node, func(healthy bool, ids ...string)) {
	t.Helper()
	n := harness.New(t)
	n.Args = append(n.Args, args...)
	n.Start()
	ctl, _ := n.Plugin(theGPU, "--devices=4")
	return n, func(healthy bool, ids ...string) {
		t.Helper()
		var err error
		if healthy {
			err = ctl.SetHealth(t.Context(), true, ids...)
		} else {
			err = ctl.Sicken(t.Context(), "XID 79", ids...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hasRestarted waits until the container main of a pod has run so often before, and runs.
func hasRestarted(n *harness.Node, pod string, want int32) {
	n.Eventually(fmt.Sprint(pod, " was restarted ", want, " times"), func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		for _, c := range pods[pod].Status.ContainerStatuses {
			if c.RestartCount == want && c.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("its status is %+v", pods[pod].Status.ContainerStatuses)
	})
}

// TestFailedDeviceRestartsOnce: a container whose device stays unhealthy is told of it, restarted once,
// and not again, also by an agent that was killed; the next failure is another one.
func TestFailedDeviceRestartsOnce(t *testing.T) {
	t.Parallel()
	n, set := failingNode(t, "--device-failure-policy=example.com/gpu=restart-container:1s")
	n.Pod("train", limited("train", "cpu: 1, example.com/gpu: 2"))
	n.AwaitPhase("train-node", v1.PodRunning)
	const planned, failed = "DeviceFailurePlanned", "DeviceFailed"
	set(false, "gpu-0", "gpu-1")
	awaitEvent(n, "train-node", planned, "Container main is restarted in 1s, unless that is over by then: "+
		"device gpu-0, gpu-1 of example.com/gpu is unhealthy, says the device plugin: XID 79", 1)
	hasRestarted(n, "train-node", 1)
	awaitEvent(n, "train-node", failed, "container main is restarted once", 1)
	awaitEvent(n, "train-node", "Killing", "Container main has a failed device, will be restarted", 1)
	awaitExplained(n, "train-node", "Container main: device gpu-0, gpu-1 of example.com/gpu: unhealthy, "+
		"says the device plugin: XID 79; the container keeps running on it, delete the pod to have another "+
		"one chosen; unhealthy for ")

	n.Kill()
	n.Start()
	awaitHealth(n, "train-node", "gpu-0=Unhealthy gpu-1=Unhealthy")
	set(true, "gpu-1")
	awaitHealth(n, "train-node", "gpu-0=Unhealthy gpu-1=Healthy")
	n.Eventually("the failure of gpu-1 is over", func() error {
		raw, err := os.ReadFile(filepath.Join(n.Root, "numalet_device_failures"))
		if err == nil && bytes.Contains(raw, []byte("gpu-1")) {
			err = fmt.Errorf("the agent remembers %s", raw)
		}
		return err
	})
	hasRestarted(n, "train-node", 1)
	set(false, "gpu-1")
	hasRestarted(n, "train-node", 2)
	awaitEvent(n, "train-node", failed, "Device gpu-1 of example.com/gpu has been unhealthy for", 1)
	awaitEvent(n, "train-node", failed, "", 2)
	if !strings.Contains(n.Get("/metrics"), `numalet_device_failures_total{action="restart-container"} 1`) {
		t.Error("the metrics of this run do not count what was done")
	}
}

// TestFailedDeviceEndsAnOnlyRun: under the restart policy Never the container ends, which is said.
func TestFailedDeviceEndsAnOnlyRun(t *testing.T) {
	t.Parallel()
	n, set := failingNode(t, "--device-failure-policy=restart-container:0s")
	n.Pod("job", manifestOf("job", "restartPolicy: Never\n  containers: [{name: main, image: sim.local/app, "+
		"resources: {limits: {example.com/gpu: 1}}}]"))
	n.AwaitPhase("job-node", v1.PodRunning)
	set(false, "gpu-0")
	n.AwaitPhase("job-node", v1.PodFailed)
	awaitEvent(n, "job-node", "DeviceFailed", "container main is stopped, and not started again since its "+
		"restart policy is Never", 1)
}

// owned is a pod of a controller, which ignores SIGTERM for its grace period of two seconds.
func owned(name string) string {
	return strings.Replace(manifestOf(name, "terminationGracePeriodSeconds: 2\n  containers: [{name: main, "+
		"image: sim.local/app, resources: {limits: {example.com/gpu: 2}}}]", "main: term=ignore"),
		"metadata:\n", "metadata:\n  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: set, "+
			"uid: set, controller: true}]\n", 1)
}

// TestFailedDeviceFailsPods: of one controller's pods with failed devices one fails, with words and a
// condition, even if the agent is killed meanwhile, and its devices go to the next pod; the others wait for
// their turn, which an administrator sees.
func TestFailedDeviceFailsPods(t *testing.T) {
	t.Parallel()
	n, set := failingNode(t, "--device-failure-policy=example.com/gpu=fail-pod:0s",
		"--device-failure-spacing=1h")
	for _, name := range []string{"a", "b"} {
		n.Pod(name, owned(name))
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	set(false, "gpu-0", "gpu-2")
	awaitEvent(n, "", "DeviceFailed", "the pod is ended and fails", 1)
	awaitEvent(n, "", "DeviceFailurePostponed", "-node of the same controller was disrupted a moment ago", 1)
	n.Kill()
	n.Start()
	n.Pod("next", limited("next", "cpu: 1, example.com/gpu: 1"))
	first, other := "a-node", "b-node"
	n.Eventually("a pod has failed", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		if pods["b-node"].Status.Phase == v1.PodFailed {
			first, other = "b-node", "a-node"
		}
		if s := pods[first].Status; s.Phase != v1.PodFailed {
			return fmt.Errorf("it is %s", s.Phase)
		}
		return nil
	})
	s := n.AwaitPhase(first, v1.PodFailed).Status
	disrupted := false
	for _, c := range s.Conditions {
		disrupted = disrupted || c.Type == v1.DisruptionTarget && c.Message == s.Message &&
			c.Reason == v1.PodReasonTerminationByKubelet
	}
	if !disrupted || s.Reason != "DeviceFailed" || !strings.Contains(s.Message,
		" of example.com/gpu has been unhealthy for 0s, says the device plugin: XID 79") {
		t.Errorf("it has failed for %s: %s, conditions %+v", s.Reason, s.Message, s.Conditions)
	}
	n.AwaitPhase("next-node", v1.PodRunning)
	n.AwaitPhase(other, v1.PodRunning)
	n.Eventually("explain says when the other pod ends", func() error {
		if text := n.Get("/debug/admission/default/" + other); !strings.Contains(text,
			"the pod is ended and fails, unless it is healthy by then") {
			return fmt.Errorf("it says %s", text)
		}
		return nil
	})
}

// TestFlapsAreNoFailures: a device that is healthy again, or whose plugin has gone, has not failed.
func TestFlapsAreNoFailures(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--device-failure-policy=fail-pod", "--device-failure-hold-off=1h")
	n.Start()
	ctl, stop := n.Plugin(theGPU, "--devices=2")
	n.Pod("train", limited("train", "cpu: 1, example.com/gpu: 2"))
	n.AwaitPhase("train-node", v1.PodRunning)
	for _, healthy := range []bool{false, true, false} {
		if err := ctl.SetHealth(t.Context(), healthy, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "gpu-0=Healthy gpu-1=Healthy", false: "gpu-0=Healthy gpu-1=Unhealthy"}
		awaitHealth(n, "train-node", want[healthy])
	}
	awaitEvent(n, "train-node", "DeviceFailurePlanned", "The pod is ended and fails in 1h0m0s", 2)
	var list bytes.Buffer
	if err := json.Compact(&list, []byte(n.Get("/devices"))); err != nil {
		t.Fatal(err)
	}
	if text := list.String(); !strings.Contains(text, `"failures":[{"container":"default/train-node/main",`) ||
		strings.Count(text, `"action":"fail-pod","due":`) != 1 {
		t.Errorf("the list of devices does not say what will be done: %s", text)
	}
	awaitEvent(n, "train-node", "DeviceFailureAverted", "is healthy again: nothing is done", 1)
	stop()
	awaitEvent(n, "train-node", "DeviceFailureAverted", "its health is unknown: nothing is done", 1)
	awaitEvent(n, "train-node", "DeviceFailed", "", 0)
}
