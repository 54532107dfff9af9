package nodestatus

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

func machine(t *testing.T) *topology.Machine {
	t.Helper()
	pages := []topology.HugePages{{PageBytes: 2 << 20, Count: 256}}
	nodes := []topology.Node{{ID: 0, MemoryBytes: 4 << 30, HugePages: pages},
		{ID: 1, MemoryBytes: 4 << 30, HugePages: pages}}
	return topologytest.Machine(t, nodes, 4, func(c *topology.CPU) {
		c.Node, c.Offline = topology.NodeID(c.ID/2), c.ID == 3
	})
}

func expect(t *testing.T, got v1.ResourceList, want string) {
	t.Helper()
	wanted := podtest.Amounts(want)
	if len(got) != len(wanted) {
		t.Errorf("got %v, want %s", got, want)
	}
	for name, q := range wanted {
		if have := got[name]; have.Cmp(q) != 0 {
			t.Errorf("%s is %s, want %s", name, have.String(), q.String())
		}
	}
}

func TestCapacityAndAllocatable(t *testing.T) {
	m := machine(t)
	expect(t, Capacity(m, 110), "cpu=3 memory=8Gi hugepages-2Mi=1Gi pods=110")
	expect(t, Allocatable(m, Reservation{
		MaxPods: 110, Reserved: podtest.Amounts("cpu=500m memory=1Gi"),
		Eviction: podtest.Amounts("memory=100Mi"),
	}), "cpu=2500m memory=6044Mi hugepages-2Mi=1Gi pods=110")
	expect(t, Allocatable(m, Reservation{Reserved: podtest.Amounts("cpu=8 memory=80Gi")}),
		"cpu=0 memory=0 hugepages-2Mi=1Gi pods=0")
}

func TestFits(t *testing.T) {
	allocatable := podtest.Amounts("cpu=2 memory=1Gi pods=3 example.com/gpu=1")
	others := []v1.ResourceList{podtest.Amounts("cpu=500m pods=1"),
		podtest.Amounts("cpu=500m memory=1Gi pods=1")}
	for want, requests := range map[string]string{
		"":          "cpu=1 pods=1 example.com/gpu=1",
		"OutOfcpu":  "cpu=1001m pods=1",
		"OutOfpods": "pods=2",
		"OutOfcpu OutOfmemory OutOfexample.com/gpu": "cpu=3 memory=1 example.com/gpu=2",
		"OutOfhugepages-2Mi":                        "hugepages-2Mi=2Mi memory=0",
	} {
		var reasons []string
		for _, s := range Fits(podtest.Amounts(requests), others, allocatable) {
			reasons = append(reasons, s.Reason())
		}
		if got := strings.Join(reasons, " "); got != want {
			t.Errorf("Fits(%s) = %q, want %q", requests, got, want)
		}
	}
	short := Fits(podtest.Amounts("cpu=1001m"), others, allocatable)[0]
	if got, want := short.Message(), "Node didn't have enough resource: cpu, requested: 1001, "+
		"used: 1000, capacity: 2000"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}
