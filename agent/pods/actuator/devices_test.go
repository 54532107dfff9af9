package actuator

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
)

// A conflict between plugins names both.
func TestConflictsAreReported(t *testing.T) {
	log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	tellConflicts(log, []allocation.DeviceSet{
		{Resource: "example.com/gpu"}, {Resource: "example.com/none"},
		{Resource: "example.com/nic"},
	}, []*pluginapi.ContainerAllocateResponse{
		{Envs: map[string]string{"A": "1"}}, {}, {Envs: map[string]string{"A": "2"}},
	})
	const want = `Environment variable has conflicting setting name="A" expected="1" ` +
		`resource="example.com/gpu" got="2" droppedResource="example.com/nic"`
	got := log.GetSink().(ktesting.Underlier).GetBuffer().String()
	if strings.Count(got, "conflicting") != 1 || !strings.Contains(got, "ERROR "+want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// Of many conflicts a few are logged, and the rest is counted.
func TestManyConflictsAreCounted(t *testing.T) {
	log := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	envs := func(value string) map[string]string {
		out := map[string]string{}
		for i := range 1000 {
			out[fmt.Sprint("E", i)] = value
		}
		return out
	}
	tellConflicts(log, []allocation.DeviceSet{{Resource: "a"}, {Resource: "b"}},
		[]*pluginapi.ContainerAllocateResponse{
			{Envs: envs("1")}, {Envs: envs(strings.Repeat("2", 1<<16))},
		})
	got := log.GetSink().(ktesting.Underlier).GetBuffer().String()
	if n := strings.Count(got, "has conflicting setting"); n != maxConflicts ||
		!strings.Contains(got, "more=984") || len(got) > 32<<10 {
		t.Errorf("%d are told in %d bytes", n, len(got))
	}
}

// A container that holds no devices of a resource that it asks for does not start. As with the
// kubelet, limits count.
func TestUnallocatedDevicesAreReported(t *testing.T) {
	pod := podtest.New("1", podtest.Containers("main cpu=1 gpu=1 nic=2 zero=0"))
	c := &pod.Spec.Containers[0]
	gpu := allocation.DeviceSet{Resource: "example.com/gpu", IDs: []string{"a"}}
	nic := allocation.DeviceSet{Resource: "example.com/nic", IDs: []string{"a", "b"}}
	all := func(string) bool { return true }
	if err := unallocated(pod, c, []allocation.DeviceSet{gpu, nic}, all); err != nil {
		t.Error(err)
	}
	const want = "no devices found allocated in local cache for pod 1, container main, resource " +
		"example.com/nic; delete the pod and create it again"
	if err := unallocated(pod, c, []allocation.DeviceSet{gpu}, all); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	gpus := func(resource string) bool { return resource == gpu.Resource }
	if err := unallocated(pod, c, []allocation.DeviceSet{gpu}, gpus); err != nil {
		t.Errorf("of a resource that no device plugin has had: %v", err)
	}
}
