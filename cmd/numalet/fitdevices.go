package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// maxInvented bounds the number of devices of one --devices RESOURCE=N.
const maxInvented = 100000

// listed is one device of a --devices file.
type listed struct {
	ID        string `json:"id"`
	Nodes     string `json:"nodes"`
	Unhealthy bool   `json:"unhealthy"`
}

// readDevices makes an inventory from the values of --devices: files, and RESOURCE=N.
func readDevices(texts []string) (devicemanager.Inventory, error) {
	all := map[string][]*devicemanager.Device{}
	for _, text := range texts {
		var err error
		if name, count, ok := strings.Cut(text, "="); ok {
			err = invent(all, name, count)
		} else {
			err = readDeviceFile(all, text)
		}
		if err != nil {
			return devicemanager.Inventory{}, fmt.Errorf("--devices %s: %w", text, err)
		}
	}
	inventory := devicemanager.Inventory{Resources: map[string]devicemanager.Resource{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		devices := all[name]
		slices.SortFunc(devices, func(a, b *devicemanager.Device) int {
			return devicemanager.CompareIDs(a.ID, b.ID)
		})
		for i := range devices[1:] {
			if devices[i].ID == devices[i+1].ID {
				return inventory, fmt.Errorf("--devices: %s has two devices %s", name,
					devices[i].ID)
			}
		}
		inventory.Resources[name] = devicemanager.Resource{Name: name, Devices: devices,
			Connected: true}
	}
	return inventory, nil
}

// invent adds the devices of "N" or "N@NODES", which take turns among the nodes.
func invent(all map[string][]*devicemanager.Device, name, count string) error {
	if !podspec.IsExtended(name) {
		return fmt.Errorf("%q is not the name of a device resource, such as example.com/gpu", name)
	}
	number, at, placed := strings.Cut(count, "@")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxInvented {
		return fmt.Errorf("%q: want a number from 1 to %d, then @ and the NUMA nodes if they are "+
			"on any", count, maxInvented)
	}
	var nodes []topology.NodeID
	if placed {
		set, err := topology.ParseNodeSet(at)
		if err != nil {
			return fmt.Errorf("%q: after @ come the NUMA nodes, such as 0-3 or 0,2", count)
		}
		if nodes = set.IDs(); len(nodes) == 0 {
			return fmt.Errorf("%q names no NUMA node after @", count)
		}
	}
	for i := range n {
		id := fmt.Sprintf("%s-%d", path.Base(name), len(all[name]))
		d := &devicemanager.Device{ID: id, Healthy: true}
		if placed {
			d.Nodes = topology.NewNodeSet(nodes[i*len(nodes)/n])
		}
		all[name] = append(all[name], d)
	}
	return nil
}

// readDeviceFile adds the devices of a YAML file, which maps resource names to lists of {id: ...,
// nodes: "0", unhealthy: true}.
func readDeviceFile(all map[string][]*devicemanager.Device, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w; want a file, or RESOURCE=N", err)
	}
	var content map[string][]listed
	if err := strictyaml.Unmarshal(raw, &content); err != nil {
		return fmt.Errorf("want resource names, each with a list of {id: gpu-0, nodes: \"0\"}: %w",
			err)
	}
	for name, devices := range content {
		if !podspec.IsExtended(name) || len(devices) == 0 {
			return fmt.Errorf("%s: want the name of a device resource, such as example.com/gpu, "+
				"and its devices", name)
		}
		for i, l := range devices {
			nodes, err := topology.ParseNodeSet(l.Nodes)
			if err != nil || l.ID == "" {
				return fmt.Errorf("%s[%d]: want an id, and nodes such as \"0\" or \"0-1\"", name, i)
			}
			all[name] = append(all[name], &devicemanager.Device{
				ID: l.ID, Healthy: !l.Unhealthy, Nodes: nodes,
			})
		}
	}
	return nil
}
