package handover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
	"github.com/numalet/numalet/topology/topologytest"
)

var online = cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)

// started is a running pod that no annotation describes.
func started(uid string) cri.Pod {
	return cri.Pod{
		UID: types.UID(uid), Namespace: "default", Name: uid,
		Sandboxes:  []cri.Sandbox{{Ready: true}},
		Containers: []cri.Container{{Name: "main", State: cri.ContainerRunning}},
	}
}

func gpu(uid string, ids checkpoint.DevicesPerNUMA) checkpoint.PodDevicesEntry {
	return checkpoint.PodDevicesEntry{
		PodUID: uid, ContainerName: "main", ResourceName: "example.com/gpu", DeviceIDs: ids,
		AllocResp: []byte{},
	}
}

func blocks(uid string, list ...memorystate.Block) memorystate.Contents {
	return memorystate.Contents{
		Entries: memorystate.ContainerMemoryAssignments{uid: {"main": list}},
	}
}

func TestTakeOverFromKubelet(t *testing.T) {
	own := func(uid string, c allocation.Container) allocation.Change {
		return allocation.Change{Put: allocation.Pod{UID: types.UID(uid), Namespace: "default", Name: uid,
			BootID: "boot-1", Containers: map[string]allocation.Container{"main": c}}}
	}
	cpus := func(uid, list string) map[string]map[string]cpuset.CPUSet {
		set, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]map[string]cpuset.CPUSet{uid: {"main": set}}
	}
	ended, broken := started("a"), gpu("a", checkpoint.DevicesPerNUMA{0: {"x"}})
	ended.Sandboxes, ended.Containers[0].State = []cri.Sandbox{{}}, cri.ContainerExited
	broken.AllocResp = []byte{0xff}
	annotated := running(t, allocation.Pod{UID: "b", Name: "b", Namespace: "default",
		Containers: map[string]allocation.Container{"main": {allocation.CPUs(cpuset.New(2))}}})

	ofThree := started("a")
	for _, name := range []string{"other", "next", "next"} {
		ofThree.Containers = append(ofThree.Containers,
			cri.Container{Name: name, State: cri.ContainerRunning})
	}
	onNode := func(node topology.NodeID, size uint64) []memory.Block {
		return []memory.Block{{Nodes: topology.NewNodeSet(node), Resource: "memory", Size: size}}
	}

	for name, test := range map[string]struct {
		kubelet Kubelet
		pods    []cri.Pod
		state   allocation.State
		want    []allocation.Change
		err     string
	}{
		"CPUs and devices": {
			kubelet: Kubelet{
				CPUs: cpucheckpoint.State{Entries: cpus("a", "2-3")},
				Devices: []checkpoint.PodDevicesEntry{
					gpu("gone", checkpoint.DevicesPerNUMA{0: {"z"}}),
					gpu("a", checkpoint.DevicesPerNUMA{
						0: {"y", "x"}, 1: {"x"}, -1: {"v"}, 1 << 40: {"w"},
					}),
				},
			},
			pods: []cri.Pod{started("a"), started("plain")},
			want: []allocation.Change{own("a", allocation.Container{allocation.CPUs(cpuset.New(2, 3)), allocation.Devices{{
				Resource: "example.com/gpu", IDs: []string{"v", "w", "x", "y"}, Answer: []byte{},
				Nodes: []topology.NodeSet{{}, {}, topology.NewNodeSet(0, 1),
					topology.NewNodeSet(0)},
			}}})},
		},
		"a pod that has ended": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{Entries: cpus("a", "2")}},
			pods:    []cri.Pod{ended},
		},
		"annotations come first": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{Entries: cpus("a", "2")}},
			pods:    []cri.Pod{started("a"), annotated},
			want:    []allocation.Change{own("b", allocation.Container{allocation.CPUs(cpuset.New(2))})},
			err:     "pod default/a: CPUs 2 belong to another pod",
		},
		"the state knows better": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{Entries: cpus("a", "2")}},
			pods:    []cri.Pod{started("a")},
			state:   allocation.State{Pods: map[types.UID]allocation.Pod{"a": {UID: "a"}}},
		},
		"devices of another pod": {
			kubelet: Kubelet{Devices: []checkpoint.PodDevicesEntry{
				gpu("a", checkpoint.DevicesPerNUMA{0: {"x"}}),
				gpu("c", checkpoint.DevicesPerNUMA{1: {"x"}}),
			}},
			pods: []cri.Pod{started("a"), started("c")},
			want: []allocation.Change{own("a", allocation.Container{allocation.Devices{{
				Resource: "example.com/gpu", IDs: []string{"x"}, Answer: []byte{},
				Nodes: []topology.NodeSet{topology.NewNodeSet(0)},
			}}})},
			err: "pod default/c: example.com/gpu [x] belong to another pod",
		},
		"CPUs that are not there": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{Entries: cpus("a", "7-9")}},
			pods:    []cri.Pod{started("a")}, err: "to container main, 8-9 are not online",
		},
		"CPUs and memory of a pod as a whole": {
			kubelet: Kubelet{
				CPUs: cpucheckpoint.State{
					Entries: map[string]map[string]cpuset.CPUSet{
						"a": {"main": cpuset.New(2, 3), "other": cpuset.New(4, 5)}},
					PodEntries: map[string]cpuset.CPUSet{"a": cpuset.New(2, 3, 4, 5)},
				},
				Memory: memorystate.Contents{
					Entries: blocks("a", memorystate.Block{
						NUMAAffinity: []int{0}, Type: "memory", Size: 3,
					}).Entries,
					PodEntries: memorystate.PodMemoryAssignments{"a": {
						MemoryBlocks: []memorystate.Block{
							{NUMAAffinity: []int{0}, Type: "memory", Size: 10},
						},
					}},
				},
			},
			pods: []cri.Pod{ofThree},
			want: []allocation.Change{{Put: allocation.Pod{UID: "a", Namespace: "default", Name: "a", BootID: "boot-1",
				Containers: map[string]allocation.Container{
					allocation.WholePod: {allocation.CPUs(cpuset.New(2, 3, 4, 5)), allocation.Memory(onNode(0, 10))},
					"main":              {allocation.CPUs(cpuset.New(2, 3)), allocation.Memory(onNode(0, 3))},
					"other":             {allocation.CPUs(cpuset.New(4, 5))},
				}}}},
		},
		"CPUs of a pod as a whole that are not there": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{
				PodEntries: map[string]cpuset.CPUSet{"a": cpuset.New(2, 9)},
			}},
			pods: []cri.Pod{started("a")}, err: "gave CPUs 2,9 to the pod, 9 are not online",
		},
		"CPUs of a pod as a whole that another has": {
			kubelet: Kubelet{CPUs: cpucheckpoint.State{
				Entries: cpus("c", "2"), PodEntries: map[string]cpuset.CPUSet{"a": cpuset.New(2)},
			}},
			pods: []cri.Pod{started("c"), started("a")},
			want: []allocation.Change{own("c", allocation.Container{allocation.CPUs(cpuset.New(2))})},
			err:  "pod default/a: CPUs 2 belong to another pod",
		},
		"memory in the kubelet's order": {
			kubelet: Kubelet{Memory: blocks("a",
				memorystate.Block{NUMAAffinity: []int{1}, Type: "memory", Size: 3},
				memorystate.Block{NUMAAffinity: []int{0, 1}, Type: "hugepages-2Mi"})},
			pods: []cri.Pod{started("a")},
			want: []allocation.Change{own("a", allocation.Container{allocation.Memory{
				{Nodes: topology.NewNodeSet(0, 1), Resource: "hugepages-2Mi"},
				{Nodes: topology.NewNodeSet(1), Resource: "memory", Size: 3},
			}})},
		},
		"memory of a node that is not there": {
			kubelet: Kubelet{Memory: blocks("a",
				memorystate.Block{NUMAAffinity: []int{2}, Type: "memory", Size: 3})},
			pods: []cri.Pod{started("a")}, err: "NUMA node 2, which does not exist",
		},
		"two blocks of memory": {
			kubelet: Kubelet{Memory: blocks("a",
				memorystate.Block{NUMAAffinity: []int{0}, Type: "memory", Size: 3},
				memorystate.Block{NUMAAffinity: []int{1}, Type: "memory", Size: 3})},
			pods: []cri.Pod{started("a")},
			err:  "container main: the kubelet has two blocks of memory",
		},
		"memory of a pod as a whole on a node that is not there": {
			kubelet: Kubelet{Memory: memorystate.Contents{
				PodEntries: memorystate.PodMemoryAssignments{"a": {
					MemoryBlocks: []memorystate.Block{
						{NUMAAffinity: []int{2}, Type: "memory", Size: 10},
					},
				}},
			}},
			pods: []cri.Pod{started("a")}, err: "NUMA node 2, which does not exist",
		},
		"an answer that cannot be read": {
			kubelet: Kubelet{Devices: []checkpoint.PodDevicesEntry{broken}},
			pods:    []cri.Pod{started("a")}, err: "decode allocate response of pod a",
		},
		"a resource twice": {
			kubelet: Kubelet{Devices: []checkpoint.PodDevicesEntry{gpu("a", nil), gpu("a", nil)}},
			pods:    []cri.Pod{started("a")},
			err:     "two entries of container main for example.com/gpu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Rebuild(test.state, test.pods, "boot-1", nil,
				test.kubelet.On(Node{Online: online, Nodes: topology.NewNodeSet(0, 1),
					CPUs: new(cpumanager.Static), Memory: new(memory.Static)}))
			if diff := cmp.Diff(test.want, got, allocationtest.Same); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

// playground returns a machine, with static policies that reserve a CPU and a GiB of it.
func playground(t *testing.T) (*topology.Machine, *cpumanager.Static, *memory.Static) {
	t.Helper()
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reserving, err := memory.New(machine, memory.Amounts{0: {"memory": 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	return machine, static, reserving
}

// TestExportedIsTakenOver: what is exported, read as the kubelet's, is what was.
func TestExportedIsTakenOver(t *testing.T) {
	machine, static, reserving := playground(t)
	a := allocationtest.Pod("a")
	a.Containers["main"].Devices()[0].Answer = []byte{0x0a, 0} // one empty environment variable
	a.Containers["main"].Devices()[1].Nodes = []topology.NodeSet{{}}
	state := allocation.State{Version: 1, Pods: map[types.UID]allocation.Pod{"a": a}}
	dir := t.TempDir()
	write := func(static *cpumanager.Static) {
		t.Helper()
		if err := Export(dir, dir, state, Node{CPUs: static, Memory: reserving}); err != nil {
			t.Fatal(err)
		}
	}
	write(static)
	kubelet, err := ReadKubelet(dir, dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want := machine.Online().Difference(cpuset.New(2, 3, 18, 19))
	if kubelet.CPUs.Policy != "static" || !kubelet.CPUs.Default.Equals(want) {
		t.Errorf("exported: %+v, want the default set %v", kubelet.CPUs, want)
	}
	if got := kubelet.Memory; got.PolicyName != "Static" ||
		got.MachineState[0].NumberOfAssignments != 2 || len(got.MachineState[1].Cells) != 2 {
		t.Errorf("exported: %+v", got)
	}
	runs := started("a")
	runs.Name = a.Name
	got, err := Rebuild(allocation.State{}, []cri.Pod{runs}, "boot-1", nil,
		kubelet.On(Node{Online: machine.Online(), Nodes: machine.NodeSet(), CPUs: static,
			Memory: reserving}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]allocation.Change{{Put: a}}, got, allocationtest.Same); diff != "" {
		t.Errorf("taken over (-want +got):\n%s", diff)
	}

	path := filepath.Join(dir, cpucheckpoint.FileName)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(static)
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("a file that was right is another now: %v", err)
	}
	reserving = nil
	write(nil)
	kubelet, err = ReadKubelet(dir, dir, time.Now())
	if err != nil || kubelet.CPUs.Policy != "none" ||
		len(kubelet.CPUs.Entries) > 0 || !kubelet.CPUs.Default.IsEmpty() ||
		kubelet.Memory.PolicyName != "None" || len(kubelet.Memory.MachineState) > 0 {
		t.Errorf("exported without a policy: %+v, %v", kubelet, err)
	}
}

func TestOneFileOfTwoIsGood(t *testing.T) {
	cpus, err := cpucheckpoint.Encode(cpucheckpoint.State{Policy: "static",
		Entries: map[string]map[string]cpuset.CPUSet{"a": {"main": cpuset.New(2)}}})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := checkpoint.Encode(
		[]checkpoint.PodDevicesEntry{gpu("a", checkpoint.DevicesPerNUMA{0: {"x"}})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cpus, devices         []byte
		wantCPUs, wantDevices int
		err                   string
	}{
		"none":       {},
		"both":       {cpus: cpus, devices: devices, wantCPUs: 1, wantDevices: 1},
		"no devices": {cpus: cpus, wantCPUs: 1},
		"half of the CPUs": {
			cpus: cpus[:40], devices: devices, wantDevices: 1, err: cpucheckpoint.FileName,
		},
		"half of the devices": {
			cpus: cpus, devices: devices[:40], wantCPUs: 1, err: checkpoint.FileName,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string][]byte{
				cpucheckpoint.FileName: test.cpus, checkpoint.FileName: test.devices,
			} {
				if content == nil {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k, err := ReadKubelet(dir, dir, time.Now())
			if len(k.CPUs.Entries) != test.wantCPUs || len(k.Devices) != test.wantDevices {
				t.Errorf("read %+v", k)
			}
			if (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one about %q", err, test.err)
			}
			aside, _ := filepath.Glob(filepath.Join(dir, "*.corrupt-*"))
			if (len(aside) == 1) != (test.err != "") ||
				err != nil && !strings.Contains(err.Error(), aside[0]) {
				t.Errorf("kept: %v, error %v", aside, err)
			}
		})
	}
}

// What pods hold and what plugins registered with a kubelet is known, each resource once; a file that
// cannot be used says nothing.
func TestKnownResources(t *testing.T) {
	dir := t.TempDir()
	held := allocation.State{Pods: map[types.UID]allocation.Pod{"a": {UID: "a",
		Containers: map[string]allocation.Container{"c": {allocation.Devices{
			{Resource: "example.com/gpu", IDs: []string{"gpu-0"}},
			{Resource: "example.com/nic", IDs: []string{"nic-0"}}}}}}}}
	if got := KnownResources(allocation.State{}, dir); len(got) != 0 {
		t.Errorf("without a file: %v", got)
	}
	raw, err := checkpoint.Encode(nil, map[string][]string{
		"example.com/gpu": {"gpu-0"}, "example.com/none": {}, "cpu": {"0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		string(raw):     {"example.com/gpu", "example.com/nic", "example.com/none"},
		string(raw[1:]): {"example.com/gpu", "example.com/nic"},
	} {
		if err := os.WriteFile(filepath.Join(dir, checkpoint.FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := KnownResources(held, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A kubelet starts with the file only if each CPU is in its default set or somebody's own, and no
// reserved one is missing there.
func TestExportWithIsolatedCPUs(t *testing.T) {
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err == nil {
		static, err = static.Isolating(cpuset.New(2, 3, 10))
	}
	if err != nil {
		t.Fatal(err)
	}
	state := allocation.State{Pods: map[types.UID]allocation.Pod{"a": {UID: "a", Containers: map[string]allocation.Container{
		"main": {allocation.CPUs(cpuset.New(2, 10))}, "more": {allocation.CPUs(cpuset.New(4))},
	}}}}
	dir := t.TempDir()
	if err := Export(dir, dir, state, Node{CPUs: static}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, cpucheckpoint.FileName))
	if err != nil {
		t.Fatal(err)
	}
	file, err := cpucheckpoint.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	all := file.Default
	for _, own := range file.Entries["a"] {
		if both := own.Intersection(file.Default); !both.IsEmpty() {
			t.Errorf("%s are shared and exclusive", both)
		}
		all = all.Union(own)
	}
	if !all.Equals(machine.Online()) || file.Default.String() != "0-1,3,5-9,11-63" {
		t.Errorf("default %s, all %s", file.Default, all)
	}
	if static.Shared(state.CPUs()).Contains(3) {
		t.Errorf("here containers share %s", static.Shared(state.CPUs()))
	}
}

// pooled is a pod with a pool, of which one container has a part and two share the rest.
func pooled() allocation.Pod {
	part := func(size uint64, cpus ...int) allocation.Container {
		return allocation.Container{allocation.CPUs(cpuset.New(cpus...)), allocation.Memory{
			{Nodes: topology.NewNodeSet(1), Resource: "memory", Size: size}}}
	}
	return allocation.Pod{UID: "p", Namespace: "default", Name: "p", BootID: "boot-1",
		Containers: map[string]allocation.Container{
			allocation.WholePod: part(4<<30, 4, 5, 6, 7),
			"main":              part(1<<30, 4, 5), "log": part(3<<30, 6), "web": part(3<<30, 6),
		}}
}

// TestPoolIsTakenOver: what a pod has as a whole goes to the kubelet's files and comes back; its memory
// counts once.
func TestPoolIsTakenOver(t *testing.T) {
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reserving, err := memory.New(machine, memory.Amounts{0: {"memory": 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	n := Node{Online: machine.Online(), Nodes: machine.NodeSet(), CPUs: static, Memory: reserving}
	dir := t.TempDir()
	state := allocation.State{Pods: map[types.UID]allocation.Pod{"p": pooled()}}
	if err := Export(dir, dir, state, n); err != nil {
		t.Fatal(err)
	}
	kubelet, err := ReadKubelet(dir, dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := kubelet.CPUs; got.PodEntries["p"].String() != "4-7" || len(got.Entries["p"]) != 3 ||
		!got.Default.Equals(machine.Online().Difference(cpuset.New(4, 5, 6, 7))) {
		t.Errorf("exported %+v", got)
	}
	if got := kubelet.Memory; len(got.PodEntries["p"].MemoryBlocks) != 1 || len(got.Entries["p"]) != 3 ||
		got.MachineState[1].NumberOfAssignments != 1 || got.MachineState[1].MemoryMap["memory"].Reserved != 4<<30 {
		t.Errorf("exported %+v", got)
	}
	got, err := Rebuild(allocation.State{}, []cri.Pod{started("p")}, "boot-1", nil, kubelet.On(n))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]allocation.Change{{Put: pooled()}}, got, allocationtest.Same); diff != "" {
		t.Errorf("taken over (-want +got):\n%s", diff)
	}
}

// TestPoolAfterALoss: a lost state is rebuilt from the annotations of the containers, and the sandbox's says
// what the pod has as a whole.
func TestPoolAfterALoss(t *testing.T) {
	has := pooled()
	pod := podtest.New("p", podtest.Containers("main", "log", "web"))
	text, err := DescribePod(pod, has)
	if err != nil {
		t.Fatal(err)
	}
	runs := started("p")
	runs.Sandboxes[0].Annotations = map[string]string{Annotation: text}
	runs.Containers = nil
	for _, name := range []string{"main", "log"} { // web is not created yet
		of, err := Describe(name, has.Containers[name])
		if err != nil {
			t.Fatal(err)
		}
		runs.Containers = append(runs.Containers, cri.Container{
			Name: name, State: cri.ContainerRunning, Annotations: map[string]string{Annotation: of}})
	}
	got, err := Rebuild(allocation.State{}, []cri.Pod{runs}, "boot-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]allocation.Change{{Put: has}}, got, allocationtest.Same); diff != "" {
		t.Errorf("rebuilt (-want +got):\n%s", diff)
	}
	known := allocation.State{Pods: map[types.UID]allocation.Pod{"p": has}}
	if got, err := Rebuild(known, []cri.Pod{runs}, "boot-1", nil); err != nil || len(got) > 0 {
		t.Errorf("of a state that is right changes %v, %v", got, err)
	}
}
