package allocation

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// dgxView is a view of a DGX whose GPUs have ids in another order than their addresses.
func dgxView(t *testing.T, policy topology.Policy) View {
	v := claimView(t, topology.Rules{Policy: policy})
	m := topologytest.Fixture(t, "dgx-h100")
	gpus := devicemanager.Resource{Name: "nvidia.com/gpu", Connected: true,
		Addresses: map[string]string{}}
	nics := devicemanager.Resource{Name: "rdma/nic", Connected: true}
	order := []int{6, 3, 5, 0, 7, 1, 4, 2}
	for _, pci := range m.PCI() {
		d := &devicemanager.Device{ID: pci.Address, Healthy: true, Nodes: topology.NewNodeSet(pci.Node)}
		if pci.Vendor != "0x10de" {
			nics.Devices = append(nics.Devices, d)
			continue
		}
		d.ID = fmt.Sprintf("GPU-%d", order[len(gpus.Devices)])
		gpus.Addresses[d.ID], gpus.Devices = pci.Address, append(gpus.Devices, d)
	}
	slices.SortFunc(gpus.Devices, func(a, b *devicemanager.Device) int {
		return devicemanager.CompareIDs(a.ID, b.ID)
	})
	v.Machine = m
	v.Inventory.Resources = map[string]devicemanager.Resource{gpus.Name: gpus, nics.Name: nics}
	return v
}

// requesting is a pod of one container with these resources and claims.
func requesting(resources string, claims ...string) *v1.Pod {
	return podtest.New("pod", podtest.Containers("main "+resources), podtest.Claims(claims...))
}

// closest returns the closeness of what a container has of two resources.
func closest(v View, c Container) topology.Closeness {
	var at []topology.PCIDevice
	for _, set := range c.Devices() {
		pci, _ := v.Inventory.Resources[set.Resource].PCI(v.Machine, set.IDs[0])
		at = append(at, pci)
	}
	return topology.ClosenessOf(at[0], at[1])
}

// Eight pods with a GPU and a NIC each get eight pairs, whatever the policy.
func TestPairsOfPods(t *testing.T) {
	for _, policy := range []topology.Policy{topology.None, topology.BestEffort, topology.Restricted,
		topology.SingleNUMANode} {
		v := dgxView(t, policy)
		taken := DeviceIDs{}
		for pod := range 8 {
			plan, err := v.Plan(requesting("nvidia.com/gpu=1 rdma/nic=1"), nil)
			if err != nil {
				t.Fatalf("%s: pod %d: %v", policy, pod, err)
			}
			c := plan.Pod.Containers["main"]
			if got := closest(v, c); got != topology.SameSwitch {
				t.Errorf("%s: pod %d has devices with the %s: %v", policy, pod, got, c.Devices())
			}
			for _, set := range c.Devices() {
				taken[set.Resource] = taken[set.Resource].Union(sets.New(set.IDs...))
			}
			v.Taken = v.Taken.With(taken)
		}
	}
}

// A plugin's GPU goes under the switch of the NIC that a claim has, but not for an administrator's.
func TestPairWithAClaim(t *testing.T) {
	nic := func(admin bool) claim.Use {
		u := use("nic", 1)
		u.Devices[0].Place = claim.Place{Nodes: topology.NewNodeSet(1), PCI: "0000:dc:00.0"}
		u.Devices[0].Admin = admin
		return u
	}
	for admin, want := range map[bool]string{false: "GPU-2", true: "GPU-0"} {
		v := dgxView(t, topology.None)
		v.Claims.Uses = []claim.Use{nic(admin)}
		plan, err := v.Plan(requesting("nvidia.com/gpu=1", "nic=nic-1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if set, _ := plan.Pod.Containers["main"].device("nvidia.com/gpu"); !slices.Equal(set.IDs,
			[]string{want}) {
			t.Errorf("admin %t: got %v, want %s", admin, set.IDs, want)
		}
	}
}
