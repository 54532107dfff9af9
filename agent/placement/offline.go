package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// Offline returns what admission would decide with on a node of these settings whose plugins offer the inventory
// and whose pods are those of the state. No agent runs, and nothing is written.
func Offline(cfg *config.Config, inventory devicemanager.Inventory, state allocation.State) (
	decide.Snapshot, error) {
	own := *cfg
	own.Node.HostnameOverride, own.Node.IP = "node", "127.0.0.1" // they play no part
	n, err := node.Identify(&own)
	if err != nil {
		return decide.Snapshot{}, err
	}
	if err := checkNodes(inventory, n.Machine()); err != nil {
		return decide.Snapshot{}, err
	}
	c := decisions(n)
	c.Handlers = Handlers(n, node.Supports{GroupsPolicy: true, AppArmor: true})
	c.Store, c.Plugins = store.Fixed(state), offlinePlugins{inventory}
	return c.Still(), nil
}

// checkNodes refuses devices on nodes that the machine does not have.
func checkNodes(inventory devicemanager.Inventory, m *topology.Machine) error {
	for _, name := range slices.Sorted(maps.Keys(inventory.Resources)) {
		for _, d := range inventory.Resources[name].Devices {
			if !d.Nodes.SubsetOf(m.NodeSet()) {
				return fmt.Errorf("device %s of %s is on NUMA node %s: machine %s has nodes %s",
					d.ID, name, d.Nodes, m.Name(), m.NodeSet())
			}
		}
	}
	return nil
}

// offlinePlugins are plugins that only offer something.
type offlinePlugins struct{ inventory devicemanager.Inventory }

var errOffline = errors.New("no device plugin runs")

func (p offlinePlugins) Inventory() devicemanager.Inventory { return p.inventory }

func (offlinePlugins) Preferred(context.Context, devicemanager.PreferredRequest) ([]string, error) {
	return nil, errOffline
}

func (offlinePlugins) Allocate(context.Context, string, []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	return nil, errOffline
}
