package nrt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

const gib = 1 << 30

var owner = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}

func device(id string, healthy bool, nodes ...topology.NodeID) *devicemanager.Device {
	return &devicemanager.Device{ID: id, Healthy: healthy, Nodes: topology.NewNodeSet(nodes...)}
}

// known returns facts about the playground's machine: 4 nodes, each with 16 CPUs and 64 GiB.
func known(t *testing.T) Facts {
	t.Helper()
	m := topologytest.Fixture(t, "playground")
	static, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 2 * gib}})
	if err != nil {
		t.Fatal(err)
	}
	return Facts{
		Machine: m, Policy: topology.SingleNUMANode, Scope: topology.PodScope,
		CPUs: m.Online().Difference(cpuset.New(0, 32)), Memory: static,
		Inventory: devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
			"example.com/gpu": {Connected: true, Devices: []*devicemanager.Device{
				device("0", true, 0), device("1", true, 0), device("2", false, 0),
				device("3", true, 2, 3), device("4", true),
			}},
			"example.com/away": {Devices: []*devicemanager.Device{device("0", true, 1)}},
		}},
		Held: allocation.Holdings{
			allocation.CPUs(cpuset.New(1, 2, 33, 8)),
			allocation.Memory{{
				Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 3 * gib,
			}},
			allocation.DeviceIDs{"example.com/gpu": sets.New("1", "3")},
		},
	}
}

// story formats the object's zones.
func story(o *v1alpha2.NodeResourceTopology) string {
	var out strings.Builder
	for _, z := range o.Zones {
		fmt.Fprintf(&out, "%s %s:", z.Name, z.Type)
		for _, c := range z.Costs {
			fmt.Fprintf(&out, " %s=%d", c.Name, c.Value)
		}
		for _, r := range z.Resources {
			fmt.Fprintf(&out, "\n  %s %s %s %s", r.Name, r.Capacity.String(),
				r.Allocatable.String(), r.Available.String())
		}
		out.WriteString("\n")
	}
	return out.String()
}

// A device that a resource claim has is not free at its plugin, wherever that has it; one of a claim with
// administrative access is.
func TestClaimedDevicesAreNotFree(t *testing.T) {
	f := known(t)
	const gpu = "nvidia.com/gpu"
	f.Inventory = devicemanager.Inventory{Resources: map[string]devicemanager.Resource{gpu: {Name: gpu,
		Connected: true, Devices: []*devicemanager.Device{device("GPU-a", true, 0), device("GPU-b", true, 0),
			device("GPU-c", true, 0), device("GPU-d", true, 1)}}}}
	claims := allocation.Claims{{Name: "gpus", UID: "u", Devices: []claim.Device{
		{Driver: "gpu.nvidia.com", Name: "gpu-0", Place: claim.Place{UUID: "GPU-a"}},
		{Driver: "gpu.nvidia.com", Name: "gpu-1-mig", Place: claim.Place{UUID: "MIG-1", Parent: "GPU-b"}},
		{Driver: "gpu.nvidia.com", Name: "gpu-3", Admin: true, Place: claim.Place{UUID: "GPU-d"}},
	}}}
	f.Held = allocation.HoldingsOf(allocation.Pod{UID: "p", Containers: map[string]allocation.Container{
		"main": allocation.Container{}.With(claims)}})
	var got []string
	for _, z := range Object(owner, f).Zones {
		for _, r := range z.Resources {
			if r.Name == gpu {
				got = append(got, fmt.Sprintf("%s %s/%s", z.Name, r.Available.String(), r.Allocatable.String()))
			}
		}
	}
	if want := "node-0 1/3, node-1 1/1"; strings.Join(got, ", ") != want {
		t.Errorf("free are %q, want %s", got, want)
	}
}

// TestZones: the capacity, allocatable and available amounts of each NUMA node, and the distances.
func TestZones(t *testing.T) {
	const want = `node-0 Node: node-0=10 node-1=12 node-2=32 node-3=32
  cpu 16 14 11
  hugepages-1Gi 4Gi 4Gi 4Gi
  hugepages-2Mi 1Gi 1Gi 1Gi
  memory 64Gi 57Gi 57Gi
  example.com/gpu 3 2 1
node-1 Node: node-0=12 node-1=10 node-2=32 node-3=32
  cpu 16 16 15
  hugepages-1Gi 4Gi 4Gi 4Gi
  hugepages-2Mi 1Gi 1Gi 1Gi
  memory 64Gi 59Gi 56Gi
  example.com/away 1 0 0
node-2 Node: node-0=32 node-1=32 node-2=10 node-3=12
  cpu 16 16 16
  hugepages-1Gi 4Gi 4Gi 4Gi
  hugepages-2Mi 1Gi 1Gi 1Gi
  memory 64Gi 59Gi 59Gi
  example.com/gpu 1 1 0
node-3 Node: node-0=32 node-1=32 node-2=12 node-3=10
  cpu 16 16 16
  hugepages-1Gi 4Gi 4Gi 4Gi
  hugepages-2Mi 1Gi 1Gi 1Gi
  memory 64Gi 59Gi 59Gi
  example.com/gpu 1 1 0
`
	f := known(t)
	if got := story(Object(owner, f)); got != want {
		t.Errorf("zones\n%s\nwant\n%s", got, want)
	}
	f.Isolated = cpuset.New(1, 2, 3, 34)
	f.CPUs = f.CPUs.Difference(f.Isolated)
	apart := strings.Replace(want, "  cpu 16 14 11\n",
		"  cpu 16 10 9\n  numalet.io/isolated-cpus 4 4 2\n", 1)
	if got := story(Object(owner, f)); got != apart {
		t.Errorf("with isolated CPUs, zones\n%s\nwant\n%s", got, apart)
	}
	f.CPUs, f.Isolated, f.Memory = cpuset.New(), cpuset.New(), nil
	f.Inventory = devicemanager.Inventory{}
	f.Held = allocation.Holdings{}
	if got, want := story(&v1alpha2.NodeResourceTopology{Zones: Object(owner, f).Zones[:1]}), `node-0 Node: node-0=10 node-1=12 node-2=32 node-3=32
  cpu 16 16 16
  hugepages-1Gi 4Gi 4Gi 4Gi
  hugepages-2Mi 1Gi 1Gi 1Gi
  memory 64Gi 59Gi 59Gi
`; got != want {
		t.Errorf("without managers and plugins\n%s\nwant\n%s", got, want)
	}
}

// TestAttributes: the topology manager's settings, and the pods that the amounts cover. The API
// server accepts the object, and the Node owns it.
func TestAttributes(t *testing.T) {
	f := known(t)
	pod := func(name string, phase v1.PodPhase) *v1.Pod {
		return podtest.New("a/"+name, podtest.Phase(phase))
	}
	f.Pods = []*v1.Pod{pod("x", v1.PodRunning), pod("y", v1.PodPending), pod("z", v1.PodRunning)}
	f.Undecided = []*v1.Pod{pod("w", "")}
	running := podfingerprint.NewFingerprint(3)
	for _, name := range []string{"w", "z", "x"} {
		if err := running.Add("a", name); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(Object(owner, f))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion, Kind string
		Metadata         metav1.ObjectMeta
		Attributes       []v1alpha2.AttributeInfo
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := "[{topologyManagerPolicy single-numa-node} {topologyManagerScope pod} " +
		"{topologyManagerMaxNUMANodes 8} {nodeTopologyPodsFingerprint " + running.Sign() +
		"} {nodeTopologyPodsFingerprintMethod all}]"
	if text := fmt.Sprint(got.Attributes); text != want {
		t.Errorf("attributes %s, want %s", text, want)
	}
	if of := got.Metadata.OwnerReferences; got.APIVersion != "topology.node.k8s.io/v1alpha2" ||
		got.Kind != "NodeResourceTopology" || got.Metadata.Name != "n" || len(of) != 1 ||
		of[0].Kind != "Node" || of[0].APIVersion != "v1" || of[0].Name != "n" || of[0].UID != "u" {
		t.Errorf("the object begins %.300s", raw)
	}
}

// TestCordonedDevices: they count only in the capacity.
func TestCordonedDevices(t *testing.T) {
	f := known(t)
	gpus := f.Inventory.Resources["example.com/gpu"]
	for i, d := range gpus.Devices {
		marked := *d
		marked.Cordoned = true
		gpus.Devices[i] = &marked
	}
	if got := story(Object(owner, f)); !strings.Contains(got, "example.com/gpu 3 0 0\nnode-1") {
		t.Errorf("zones\n%s", got)
	}
}
