package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/explain"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

const theGPU = "example.com/gpu"

// awaitHealth waits until the pod's status has this health of its devices: "gpu-0=Healthy
// gpu-1=Unknown".
func awaitHealth(n *harness.Node, pod, want string) {
	n.Eventually("pod "+pod+" tells "+want, func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		var got []string
		for _, c := range pods[pod].Status.ContainerStatuses {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					got = append(got, fmt.Sprintf("%s=%s", d.ResourceID, d.Health))
				}
			}
		}
		if strings.Join(got, " ") != want {
			return fmt.Errorf("it tells %q", got)
		}
		return nil
	})
}

// awaitExplained waits until this is the first problem that the pod's explanation names; "" stands
// for none.
func awaitExplained(n *harness.Node, pod, want string) {
	n.Eventually("explain says "+want, func() error {
		var record explain.Record
		text := n.Get("/debug/admission/default/" + pod)
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			return err
		}
		if got := strings.Join(record.Remarks.Since, "\n"); !strings.HasPrefix(got, want) ||
			want == "" && got != "" {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// awaitPlacedHealth waits until the container's placement has this health of its devices.
func awaitPlacedHealth(n *harness.Node, container, want string) {
	n.Eventually(container+" has "+want, func() error {
		rows, err := n.Placements()
		if err != nil {
			return err
		}
		got, err := json.Marshal(rows[container].DeviceHealth)
		if err == nil && string(got) != want {
			err = fmt.Errorf("it has %s", got)
		}
		return err
	})
}

// awaitNumbers waits until the metrics have these numbers for the resource.
func awaitNumbers(n *harness.Node, capacity, allocatable int) {
	what := fmt.Sprintf("%d of %d devices are allocatable", allocatable, capacity)
	n.Eventually(what, func() error {
		text := n.Get("/metrics")
		for of, want := range map[string]int{"capacity": capacity, "allocatable": allocatable} {
			line := fmt.Sprintf("numalet_device_plugin_devices{of=%q,resource_name=%q} %d\n",
				of, theGPU, want)
			if !strings.Contains(text, line) {
				return fmt.Errorf("the metrics lack %s", line)
			}
		}
		return nil
	})
}

// TestDeviceHealthReachesThePod: every change of a device's health appears in the status of the pod
// that holds it and in an event. The plugin's end makes the health unknown.
func TestDeviceHealthReachesThePod(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, stop := n.Plugin(theGPU, "--devices=4")
	n.Pod("train", limited("train", "cpu: 1, example.com/gpu: 2"))
	n.AwaitPhase("train-node", v1.PodRunning)
	awaitHealth(n, "train-node", "gpu-0=Healthy gpu-1=Healthy")

	if err := ctl.SetHealth(t.Context(), false, "gpu-1", "gpu-3"); err != nil {
		t.Fatal(err)
	}
	awaitHealth(n, "train-node", "gpu-0=Healthy gpu-1=Unhealthy")
	awaitEvent(n, "train-node", "DeviceUnhealthy",
		"Container main: device gpu-1 of example.com/gpu: unhealthy", 1)
	awaitExplained(n, "train-node", "Container main: device gpu-1 of example.com/gpu: unhealthy")
	awaitPlacedHealth(n, "train-node/main", `{"example.com/gpu":{"gpu-1":"Unhealthy"}}`)
	if logged(t, n, "The health of devices in use changed", "gpu-1") != 1 {
		t.Error("the log has nothing of the device")
	}
	if err := ctl.SetHealth(t.Context(), true, "gpu-1"); err != nil {
		t.Fatal(err)
	}
	awaitHealth(n, "train-node", "gpu-0=Healthy gpu-1=Healthy")
	awaitEvent(n, "train-node", "DeviceHealthy",
		"Container main: device gpu-1 of example.com/gpu: healthy again", 1)
	awaitExplained(n, "train-node", "")
	awaitPlacedHealth(n, "train-node/main", "null")

	stop()
	awaitHealth(n, "train-node", "gpu-0=Unknown gpu-1=Unknown")
	awaitEvent(n, "train-node", "DeviceHealthUnknown",
		"Container main: device gpu-0, gpu-1 of example.com/gpu: health unknown", 1)

	// After a restart of the agent the health is unknown until the plugin is back, which causes no
	// event.
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	n.Start()
	awaitHealth(n, "train-node", "gpu-0=Unknown gpu-1=Unknown")
	n.Plugin(theGPU, "--devices=4")
	awaitHealth(n, "train-node", "gpu-0=Healthy gpu-1=Healthy")
	awaitEvent(n, "train-node", "DeviceHealthUnknown", "", 1)
	awaitEvent(n, "train-node", "DeviceHealthy", "", 1)
	main := n.AwaitPhase("train-node", v1.PodRunning).Status.ContainerStatuses[0]
	if main.RestartCount != 0 {
		t.Errorf("the container was restarted: %+v", main)
	}
}

// TestWhyADeviceIsUnhealthy: what a plugin says about an unhealthy device appears wherever its
// health does, until the device is healthy again.
func TestWhyADeviceIsUnhealthy(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin(theGPU, "--devices=4")
	n.Pod("train", limited("train", "cpu: 1, example.com/gpu: 2"))
	n.AwaitPhase("train-node", v1.PodRunning)
	const why = "XID 79: it has fallen off the bus"
	if err := ctl.Sicken(t.Context(), why, "gpu-0", "gpu-1"); err != nil {
		t.Fatal(err)
	}
	const said = "Container main: device gpu-0, gpu-1 of example.com/gpu: unhealthy, says the device " +
		"plugin: " + why + "; the container keeps"
	awaitEvent(n, "train-node", "DeviceUnhealthy", said, 1)
	awaitExplained(n, "train-node", said)
	message := func(want *string) {
		t.Helper()
		n.Eventually("the status says why", func() error {
			for _, s := range n.AwaitPhase("train-node", v1.PodRunning).Status.ContainerStatuses {
				for _, r := range s.AllocatedResourcesStatus {
					for _, d := range r.Resources {
						if !ptr.Equal(d.Message, want) {
							return fmt.Errorf("%s: %q", d.ResourceID, ptr.Deref(d.Message, ""))
						}
					}
				}
			}
			return nil
		})
	}
	message(ptr.To(why))
	if text := n.Get("/devices"); strings.Count(text, why) != 2 {
		t.Errorf("the list of devices does not say why two are unhealthy: %s", text)
	}
	if err := ctl.SetHealth(t.Context(), true, "gpu-0", "gpu-1"); err != nil {
		t.Fatal(err)
	}
	awaitHealth(n, "train-node", "gpu-0=Healthy gpu-1=Healthy")
	message(nil)
}

// TestDeviceHealthOfTheEnded: an ended container hears nothing more about the device that it had.
func TestDeviceHealthOfTheEnded(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin(theGPU, "--devices=2")
	n.Pod("pair", `apiVersion: v1
kind: Pod
metadata: {name: pair, annotations: {sim.numalet.io/job: exit=0}}
spec:
  restartPolicy: OnFailure
  containers:
  - {name: job, image: x, resources: {limits: {example.com/gpu: 1}}}
  - {name: main, image: x, resources: {limits: {example.com/gpu: 1}}}
`)
	n.Eventually("the job has ended", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		for _, c := range pods["pair-node"].Status.ContainerStatuses {
			if c.Name == "job" && c.State.Terminated != nil {
				return nil
			}
		}
		return fmt.Errorf("its pod is %+v", pods["pair-node"].Status)
	})
	if err := ctl.SetHealth(t.Context(), false, "gpu-0", "gpu-1"); err != nil {
		t.Fatal(err)
	}
	awaitEvent(n, "pair-node", "DeviceUnhealthy", "Container main: ", 1)
	if logged(t, n, "The health of devices in use changed", "Container job") != 0 {
		t.Error("the container that has ended was told of")
	}
}

// TestDeviceHealthGate: without the feature gate the status has no health.
func TestDeviceHealthGate(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["featureGates"] = map[string]bool{"ResourceHealthStatus": false}
	n.Start()
	n.Plugin(theGPU, "--devices=1")
	n.Pod("train", limited("train", "example.com/gpu: 1"))
	pod := n.AwaitPhase("train-node", v1.PodRunning)
	if got := pod.Status.ContainerStatuses[0].AllocatedResourcesStatus; got != nil {
		t.Errorf("the status has %v", got)
	}
}

// TestTakeoverBetweenPlugins: the newer of two plugins serves the resource. The end of the older
// one changes nothing. The end of the newer one hands the resource back to the older one if that
// still runs.
func TestTakeoverBetweenPlugins(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	_, stopOld := n.PluginNamed("old", theGPU, "--devices=2", "--socket=old.sock")
	awaitNumbers(n, 2, 2)
	_, stopNew := n.PluginNamed("new", theGPU, "--devices=5", "--socket=new.sock")
	awaitNumbers(n, 5, 5)
	stopNew()
	awaitNumbers(n, 2, 2)
	n.Pod("one", limited("one", "example.com/gpu: 2"))
	n.AwaitPhase("one-node", v1.PodRunning)

	n.PluginNamed("newest", theGPU, "--devices=6", "--socket=newest.sock")
	awaitNumbers(n, 6, 6)
	stopOld()
	n.Pod("two", limited("two", "example.com/gpu: 4"))
	n.AwaitPhase("two-node", v1.PodRunning)
	awaitNumbers(n, 6, 6)
}

// TestDeviceGraces: the numbers of a plugin that goes away remain for a while, those of an empty
// list drop at once.
func TestDeviceGraces(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--device-plugin-capacity-grace=6s",
		"--device-plugin-allocatable-grace=3s", "--device-plugin-dial-timeout=500ms")
	n.Start()
	_, stop := n.Plugin(theGPU, "--devices=3")
	awaitNumbers(n, 3, 3)
	began := time.Now()
	stop()
	awaitNumbers(n, 3, 0)
	if since := time.Since(began); since < 2*time.Second {
		t.Errorf("the devices were not allocatable any more after %v", since)
	}
	awaitNumbers(n, 0, 0)
	if since := time.Since(began); since < 5*time.Second {
		t.Errorf("the capacity was gone after %v", since)
	}

	ctl, _ := n.Plugin(theGPU, "--devices=3")
	awaitNumbers(n, 3, 3)
	began = time.Now()
	if err := ctl.Remove(t.Context(), "gpu-0", "gpu-1", "gpu-2"); err != nil {
		t.Fatal(err)
	}
	awaitNumbers(n, 0, 0)
	t.Logf("an empty list counted after %v", time.Since(began))
}

// TestListEndsWhileThePluginLives: a plugin that ends its list is called again when it registers.
func TestListEndsWhileThePluginLives(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin(theGPU, "--devices=3")
	awaitNumbers(n, 3, 3)
	once := pluginsim.Fault{RPC: pluginsim.List, Code: "INTERNAL", Count: 1}
	if err := ctl.Fault(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	n.Eventually("the end is told", func() error {
		if text := n.Get("/problems"); !strings.Contains(text, "ListAndWatch: rpc error: code = Internal") {
			return errors.New(text)
		}
		return nil
	})
	awaitNumbers(n, 3, 3)
	if err := ctl.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Pod("one", limited("one", "example.com/gpu: 3"))
	n.AwaitPhase("one-node", v1.PodRunning)
}

// TestAdviceIsOnlyAdvice: whatever is wrong with a plugin's preference, the pod runs. An event says
// that the preference was not followed, and why.
func TestAdviceIsOnlyAdvice(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--device-plugin-preferred-timeout=300ms")
	n.Start()
	ctl, _ := n.Plugin(theGPU, "--devices=8")
	if err := ctl.SetHealth(t.Context(), false, "gpu-7"); err != nil {
		t.Fatal(err)
	}
	awaitNumbers(n, 8, 7)
	for name, tc := range map[string]struct {
		fault pluginsim.Fault
		want  string
	}{
		"error": {pluginsim.Fault{Code: "INTERNAL", Message: "no idea"}, "no idea"},
		"timeout": {pluginsim.Fault{Delay: metav1.Duration{Duration: 2 * time.Second}},
			"was not answered within its deadline of 300ms"},
		"few": {pluginsim.Fault{Lie: pluginsim.Few},
			"1 of its devices can be used where 2 were asked for"},
		"foreign": {pluginsim.Fault{Lie: pluginsim.Foreign},
			"devices that it does not list: foreign-gpu-"},
		"unhealthy": {pluginsim.Fault{Lie: pluginsim.Broken}, "unhealthy devices: gpu-7"},
		"empty":     {pluginsim.Fault{Lie: pluginsim.Empty}, "its preference names no container"},
	} {
		tc.fault.RPC = pluginsim.Preferred
		if err := ctl.Fault(t.Context(), tc.fault); err != nil {
			t.Fatal(err)
		}
		n.Pod(name, limited(name, "example.com/gpu: 2"))
		n.AwaitPhase(name+"-node", v1.PodRunning)
		awaitEvent(n, name+"-node", "DevicePreferenceIgnored", tc.want, 1)
		held := placementOf(t, n, name+"-node/main").Devices[theGPU]
		if len(held) != 2 || slices.Contains(held, "gpu-7") {
			t.Errorf("%s: the pod holds %q", name, held)
		}
		n.RemovePod(name)
		n.AwaitGone(name + "-node")
	}
	text := n.Get("/metrics")
	for outcome, want := range map[string]int{"error": 1, "deadline_exceeded": 1, "bad_answer": 4} {
		line := fmt.Sprintf("numalet_device_plugin_calls_total{outcome=%q,resource_name=%q,"+
			"rpc=\"GetPreferredAllocation\"} %d\n", outcome, theGPU, want)
		if !strings.Contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
