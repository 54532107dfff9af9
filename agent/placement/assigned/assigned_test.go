package assigned

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

func pod(name string, phase v1.PodPhase, containers ...string) *v1.Pod {
	p := podtest.New(name, podtest.Phase(phase), podtest.Containers(containers...))
	for _, c := range containers {
		s := v1.ContainerStatus{Name: c}
		if phase == v1.PodRunning {
			s.State.Running = &v1.ContainerStateRunning{}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	return p
}

func TestRows(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0, MemoryBytes: 1}, {ID: 1, MemoryBytes: 1}},
		CPUs: []topology.CPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Node: 1, Core: 2},
			{ID: 3, Node: 1, Core: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	static, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1}})
	if err != nil {
		t.Fatal(err)
	}
	waiting := pod("waits", v1.PodPending, "main")
	waiting.Status.Reason, waiting.Status.Message = "WaitingForDevicePlugin", "no plugin"
	crashing := pod("crash", v1.PodRunning, "main")
	crashing.Status.ContainerStatuses[0].State = v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"},
	}
	gpu := func(ids ...string) []allocation.DeviceSet {
		return []allocation.DeviceSet{{
			Resource: "example.com/gpu", IDs: ids,
			Nodes: []topology.NodeSet{topology.NewNodeSet(1)},
		}}
	}
	pinning, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Hardware: machine.Hardware{Machine: m, CPUs: pinning, Memory: static},
		Pods: []*v1.Pod{waiting, crashing, pod("both", v1.PodRunning, "own", "shares"),
			pod("apart", v1.PodRunning, "main")},
		Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{
			"both": {Containers: map[string]allocation.Container{"own": {
				allocation.CPUs(cpuset.New(2, 3)),
				allocation.Memory{
					{Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 1},
				},
				allocation.Devices(gpu("b")),
			}}},
			"apart": {Containers: map[string]allocation.Container{"main": {
				allocation.CPUs(cpuset.New(1)), allocation.Devices(gpu("c")),
			}}},
		}},
		Shared: cpuset.New(0),
	}
	var lines []string
	for _, r := range Rows(in) {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Row
		if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%s was read as %+v, %v", raw, back, err)
		}
		lines = append(lines, string(raw))
	}
	want := `{"namespace":"default","pod":"apart","container":"main","phase":"Running","reason":"","cpus":"1","exclusive":true,"memoryNodes":"0-1","devices":{"example.com/gpu":["c"]},"numaNodes":"0-1","aligned":false}
{"namespace":"default","pod":"both","container":"own","phase":"Running","reason":"","cpus":"2-3","exclusive":true,"memoryNodes":"1","devices":{"example.com/gpu":["b"]},"numaNodes":"1","aligned":true}
{"namespace":"default","pod":"both","container":"shares","phase":"Running","reason":"","cpus":"0","exclusive":false,"memoryNodes":"0-1","devices":{},"numaNodes":"","aligned":null}
{"namespace":"default","pod":"crash","container":"main","phase":"Running","reason":"CrashLoopBackOff","message":"back-off 10s","cpus":"","exclusive":false,"memoryNodes":"","devices":{},"numaNodes":"","aligned":null}
{"namespace":"default","pod":"waits","container":"main","phase":"Pending","reason":"WaitingForDevicePlugin","message":"no plugin","cpus":"","exclusive":false,"memoryNodes":"","devices":{},"numaNodes":"","aligned":null}`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("rows:\n%s\nwant:\n%s", got, want)
	}

	if in.Hardware.CPUs, err = pinning.Isolating(cpuset.New(1)); err != nil {
		t.Fatal(err)
	}
	if rows := Rows(in); !rows[0].Isolated || rows[1].Isolated || rows[2].Isolated {
		t.Errorf("with an isolated CPU: %+v", rows)
	}

	// CPUs and memory from an earlier policy do not count as held.
	in.Hardware.CPUs, in.Hardware.Memory, in.Shared = nil, nil, m.Online()
	own := Rows(in)[1]
	if own.CPUs != "0-3" || own.Exclusive || own.MemoryNodes != "0-1" || own.NUMANodes != "1" {
		t.Errorf("under the policies none: %+v", own)
	}
}

// Devices of resource claims are listed as those of plugins, by their driver.
func TestDevicesOfClaims(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0, MemoryBytes: 1}, {ID: 1, MemoryBytes: 1}},
		CPUs:  []topology.CPU{{ID: 0}, {ID: 1, Core: 1, Node: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Hardware: machine.Hardware{Machine: m},
		Pods:     []*v1.Pod{pod("p", v1.PodRunning, "main")},
		Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{"p": {
			Containers: map[string]allocation.Container{"main": {allocation.Claims{{Name: "c", Devices: []claim.Device{
				{Driver: "gpu.c", Pool: "n", Name: "0", Place: claim.Place{Nodes: topology.NewNodeSet(1)}},
				{Driver: "gpu.c", Pool: "n", Name: "1", Place: claim.Place{Nodes: topology.NewNodeSet(1)}},
			}}}}},
		}}},
		Ill: func(d claim.Device) bool { return d.Name == "1" },
	}
	got := Rows(in)[0]
	if fmt.Sprint(got.Devices, got.DeviceHealth) != "map[gpu.c:[n/0 n/1]] map[gpu.c:map[n/1:Unhealthy]]" ||
		got.NUMANodes != "1" || got.Aligned == nil || !*got.Aligned {
		t.Errorf("%+v", got)
	}
}

// Devices that are not healthy are listed with their health, unless health is not reported.
func TestDeviceHealth(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0, MemoryBytes: 1}}, CPUs: []topology.CPU{{ID: 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Hardware: machine.Hardware{Machine: m},
		Pods:     []*v1.Pod{pod("p", v1.PodRunning, "main")},
		Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{"p": {
			Containers: map[string]allocation.Container{"main": {allocation.Devices{
				{Resource: "example.com/gpu", IDs: []string{"well", "ill", "gone"}},
			}}},
		}}},
		Health: func(_, id string) v1.ResourceHealthStatus {
			return map[string]v1.ResourceHealthStatus{
				"well": v1.ResourceHealthStatusHealthy, "ill": v1.ResourceHealthStatusUnhealthy,
				"gone": v1.ResourceHealthStatusUnknown,
			}[id]
		},
	}
	for _, want := range []string{
		`{"example.com/gpu":{"gone":"Unknown","ill":"Unhealthy"}}`, "null",
	} {
		got, err := json.Marshal(Rows(in)[0].DeviceHealth)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		in.Health = nil
	}
}
