package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// inventoryOf parses "a b!": devices of one resource, ! for unhealthy; "" is a disconnected plugin.
func inventoryOf(text string) devicemanager.Inventory {
	r := devicemanager.Resource{Name: "example.com/gpu", Connected: text != ""}
	for word := range strings.FieldsSeq(text) {
		id := strings.TrimSuffix(word, "!")
		r.Devices = append(r.Devices, &devicemanager.Device{ID: id, Healthy: id == word})
	}
	return devicemanager.Inventory{Resources: map[string]devicemanager.Resource{r.Name: r}}
}

// Each step is an inventory and the events that it causes.
func TestDeviceHealthIsReportedOnce(t *testing.T) {
	state := allocation.State{Pods: map[types.UID]allocation.Pod{"p": {
		Containers: map[string]allocation.Container{"main": {
			allocation.Devices{{Resource: "example.com/gpu", IDs: []string{"a", "b"}}},
		}},
	}}}
	for name, steps := range map[string][][2]string{
		"healthy from the start": {{"a b", ""}, {"a b", ""}, {"a! b", "DeviceUnhealthy a"}, {"a! b", ""},
			{"a b", "DeviceHealthy a"}},
		"both at once": {{"a b c", ""}, {"a! b! c", "DeviceUnhealthy a, b"},
			{"a b! c!", "DeviceHealthy a"}},
		"the plugin goes": {{"a b", ""}, {"", "DeviceHealthUnknown a, b"}, {"", ""},
			{"a b", "DeviceHealthy a, b"}},
		"a device vanishes":     {{"a b", ""}, {"a", "DeviceHealthUnknown b"}, {"a b!", "DeviceUnhealthy b"}},
		"the agent restarts":    {{"", ""}, {"", ""}, {"a b!", "DeviceUnhealthy b"}, {"", "DeviceHealthUnknown a, b"}},
		"unhealthy from before": {{"a! b", "DeviceUnhealthy a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var inventory devicemanager.Inventory
			var reported []string
			refreshed := 0
			h := &devices{cfg: Config{
				Inventory: func() devicemanager.Inventory { return inventory },
				State:     func() allocation.State { return state },
				Pod:       func(types.UID) (*v1.Pod, bool) { return &v1.Pod{}, true },
				Status:    func(types.UID) v1.PodStatus { return v1.PodStatus{} },
				Refresh:   func(types.UID) { refreshed++ },
				Tell: func(_ *v1.Pod, _, reason, message string) {
					ids, _, _ := strings.Cut(message, " of example.com/gpu")
					_, ids, _ = strings.Cut(ids, ": device ")
					reported = append(reported, reason+" "+ids)
				},
			}}
			for i, s := range steps {
				inventory = inventoryOf(s[0])
				reported, refreshed = nil, 0
				h.round(klog.Background())
				if got := strings.Join(reported, "; "); got != s[1] {
					t.Errorf("step %d (%s): told %q, want %q", i, s[0], got, s[1])
				}
				if s[1] != "" && refreshed != 1 {
					t.Errorf("step %d (%s): the status was made anew %d times", i, s[0], refreshed)
				}
				refreshed = 0
				if h.round(klog.Background()); refreshed > 0 {
					t.Errorf("step %d (%s): the status was made anew for nothing", i, s[0])
				}
			}
		})
	}
}

// A plugin may report a device as unhealthy while it prepares it for the next pod, which does not
// concern a container that has ended.
func TestHealthOfEndedContainers(t *testing.T) {
	const gpu = "example.com/gpu"
	held := allocation.Container{allocation.Devices{{Resource: gpu, IDs: []string{"a"}}}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	now := v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "init", State: ended}},
		ContainerStatuses:     []v1.ContainerStatus{{Name: "main"}, {Name: "done", State: ended}},
	}
	var reported []string
	h := &devices{cfg: Config{
		Inventory: func() devicemanager.Inventory { return inventoryOf("a!") },
		State: func() allocation.State {
			return allocation.State{Pods: map[types.UID]allocation.Pod{"p": {
				Containers: map[string]allocation.Container{"init": held, "main": held, "done": held},
			}}}
		},
		Pod:     func(types.UID) (*v1.Pod, bool) { return &v1.Pod{}, true },
		Status:  func(types.UID) v1.PodStatus { return now },
		Refresh: func(types.UID) {},
		Tell: func(_ *v1.Pod, _, _, message string) {
			container, _, _ := strings.Cut(message, ":")
			reported = append(reported, container)
		},
	}}
	h.round(klog.Background())
	if !slices.Equal(reported, []string{"Container main"}) {
		t.Errorf("told of %q", reported)
	}
}

func TestHealthChangeInWords(t *testing.T) {
	c := healthChange{changeKey: changeKey{
		container: "main", resource: "example.com/gpu", health: v1.ResourceHealthStatusUnhealthy,
	}}
	for i := range 10 {
		c.ids = append(c.ids, fmt.Sprintf("gpu-%d", i))
	}
	kind, reason, message := c.event()
	want := "Container main: device gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and 2 " +
		"more of example.com/gpu: unhealthy, says the device plugin; the container keeps running " +
		"on it, delete the pod to have another one chosen"
	if kind != v1.EventTypeWarning || reason != "DeviceUnhealthy" || message != want {
		t.Errorf("%s %s %q", kind, reason, message)
	}
	c.health = v1.ResourceHealthStatusHealthy
	if kind, reason, _ := c.event(); kind != v1.EventTypeNormal || reason != "DeviceHealthy" {
		t.Errorf("%s %s", kind, reason)
	}
}

func TestResourceStatuses(t *testing.T) {
	pod := allocation.Pod{Containers: map[string]allocation.Container{
		"main": {allocation.Devices{
			{Resource: "example.com/gpu", IDs: []string{"a", "b", "gone"}},
			{Resource: "example.com/nic", IDs: []string{"n"}},
		}},
		"plain": {},
	}}
	got := ResourceStatuses(pod, Sources{Inventory: inventoryOf("a b!")}, nil)
	want := []v1.ResourceStatus{
		{Name: "example.com/gpu", Resources: []v1.ResourceHealth{
			{ResourceID: "a", Health: "Healthy"}, {ResourceID: "b", Health: "Unhealthy"},
			{ResourceID: "gone", Health: "Unknown"},
		}},
		{
			Name:      "example.com/nic",
			Resources: []v1.ResourceHealth{{ResourceID: "n", Health: "Unknown"}},
		},
	}
	if len(got) != 1 || !slices.EqualFunc(got["main"], want, func(a, b v1.ResourceStatus) bool {
		return a.Name == b.Name && slices.Equal(a.Resources, b.Resources)
	}) {
		t.Errorf("got %+v", got)
	}
}

func TestWhyHealthIsUnknown(t *testing.T) {
	pod := allocation.Pod{UID: "p", Containers: map[string]allocation.Container{"main": {
		allocation.Devices{{Resource: "example.com/gpu", IDs: []string{"a"}}},
	}}}
	const before = "Container main: device a of example.com/gpu: health unknown, its device plugin "
	const after = "; the container keeps running on it"
	for _, c := range []struct {
		r    devicemanager.Resource
		want string
	}{
		{devicemanager.Resource{Connected: true}, "does not list it any more"},
		{devicemanager.Resource{}, "is not connected"},
		{devicemanager.Resource{Problem: "it ended its stream"},
			"is disconnected: it ended its stream"},
	} {
		got := Amiss(&v1.Pod{}, pod, Sources{Inventory: devicemanager.Inventory{
			Resources: map[string]devicemanager.Resource{"example.com/gpu": c.r},
		}}, nil)
		if want := []string{before + c.want + after}; !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", c.r, got, want)
		}
	}
	ended := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}}}
	if got := Amiss(ended, pod, Sources{}, nil); got != nil {
		t.Errorf("of a container that has ended it says %q", got)
	}
}
