package podresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// A watch tells where the devices of pods and of plugins are, and that this has changed.
func TestPlacesAreWatched(t *testing.T) {
	m := topologytest.Fixture(t, "dgx-h100")
	pod := podtest.New("train", podtest.UID("1"), podtest.Containers("main cpu=1"))
	held := func(address string) allocation.State {
		return allocation.State{Pods: map[types.UID]allocation.Pod{pod.UID: {
			Containers: map[string]allocation.Container{"main": {
				allocation.Devices{
					{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2"}, Addresses: []string{address, ""}},
					{Resource: "rdma/nic", IDs: []string{"0000:18:00.0", "opaque"}}},
				allocation.Claims{{Name: "c", Devices: []claim.Device{{Driver: "d", Pool: "p", Name: "x",
					Place: claim.Place{Nodes: topology.NewNodeSet(1)}}, {Driver: "d", Pool: "p", Name: "y"}}}},
			}}}}}
	}
	gpu := devicemanager.Resource{Name: "nvidia.com/gpu", Connected: true,
		Devices:   []*devicemanager.Device{{ID: "GPU-1", Healthy: true}, {ID: "GPU-2", Healthy: true}},
		Addresses: map[string]string{"GPU-2": "0000:43:00.0"}}
	now := Snapshot{Pods: []*v1.Pod{pod}, Machine: m, Assigned: held("0000:1b:00.0"),
		Inventory: devicemanager.Inventory{Version: 1, Resources: map[string]devicemanager.Resource{gpu.Name: gpu}}}
	before := now.state()
	var said []string
	tell := func(places []*watchv1.Place) {
		for _, p := range places {
			said = append(said, strings.Join(strings.Fields(fmt.Sprintf("%s%s %s %v %s %s %s", p.ResourceName, p.Driver,
				p.DeviceId, p.NumaNodes, p.PciAddress, p.PcieSwitch, p.PcieRoot)), " "))
		}
	}
	for msg := range before.messages(filter{allocatable: true}, false) {
		tell(msg.GetPod().GetPlaces())
		tell(msg.GetDevices().GetPlaces())
	}
	want := []string{"d x [1]", "nvidia.com/gpu GPU-1 [] 0000:1b:00.0 0000:16:00.0 pci0000:15",
		"nvidia.com/gpu GPU-2 [] 0000:43:00.0 0000:3e:00.0 pci0000:3d",
		"rdma/nic 0000:18:00.0 [] 0000:18:00.0 0000:16:00.0 pci0000:15",
		"nvidia.com/gpu GPU-2 [] 0000:43:00.0 0000:3e:00.0 pci0000:3d"}
	if got := strings.Join(said, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("told is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	next := now
	next.Assigned = held("0000:52:00.0")
	c, changed := follow(before, next.state())
	if !changed || len(c.pods) != 1 || c.pods[0].places[1].GetPciAddress() != "0000:52:00.0" {
		t.Errorf("another place is no change: %+v", c)
	}
	if _, changed := follow(before, now.state()); changed {
		t.Error("the same places are a change")
	}
}
