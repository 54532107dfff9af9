package hollow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// devices acts as a device plugin for each resource of a fixed inventory. It implements
// admission.Plugins.
type devices struct{ inventory devicemanager.Inventory }

var errNoPreference = errors.New("the invented device plugins have no preference")

// Inventory implements admission.Plugins.
func (d devices) Inventory() devicemanager.Inventory { return d.inventory }

// Preferred implements admission.Plugins.
func (devices) Preferred(context.Context, devicemanager.PreferredRequest) ([]string, error) {
	return nil, errNoPreference
}

// Allocate implements admission.Plugins: as with the simulated plugin, a variable tells containers
// their devices.
func (devices) Allocate(_ context.Context, resource string, ids []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	return &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{sim.EnvName(resource): strings.Join(ids, ",")},
	}, nil
}

// maxDevices bounds the invented devices of one resource on one node.
const maxDevices = 4096

// Invented describes devices of every node, spread in blocks over its NUMA nodes.
type Invented struct {
	Resource string
	Count    int
}

// offer returns what plugins offer on a machine: the invented devices or, without any, the
// machine's GPUs as example.com/gpu and its network interfaces as example.com/nic.
func offer(m *topology.Machine, invented []Invented) (devicemanager.Inventory, error) {
	out := devicemanager.Inventory{Version: 1, Resources: map[string]devicemanager.Resource{}}
	for _, i := range invented {
		if i.Count < 1 || i.Count > maxDevices {
			return out, fmt.Errorf("%d devices of %s: a node has 1 to %d", i.Count, i.Resource,
				maxDevices)
		}
		list, err := sim.Spread(sim.Kind(i.Resource), i.Count, m.NodeSet(), sim.Blocked)
		if err != nil {
			return out, err
		}
		out.Resources[i.Resource] = resource(i.Resource, list)
	}
	if len(invented) > 0 {
		return out, nil
	}
	for _, kind := range []struct{ resource, class string }{
		{"example.com/gpu", "03"}, {"example.com/nic", "02"},
	} {
		list, err := sim.FromMachine(m, kind.class, sim.Kind(kind.resource))
		if err == nil { // else the machine has none
			out.Resources[kind.resource] = resource(kind.resource, list)
		}
	}
	return out, nil
}

func resource(name string, list []sim.Device) devicemanager.Resource {
	r := devicemanager.Resource{
		Name: name, Generation: 1, Connected: true, Capacity: len(list), Allocatable: len(list),
	}
	for _, d := range list {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: d.ID, Healthy: true, Nodes: topology.NewNodeSet(d.Nodes...),
		})
	}
	slices.SortFunc(r.Devices, func(a, b *devicemanager.Device) int {
		return devicemanager.CompareIDs(a.ID, b.ID)
	})
	return r
}
