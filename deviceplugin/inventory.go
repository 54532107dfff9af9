package deviceplugin

import "github.com/numalet/numalet/topology"

// Device is one device as its plugin lists it.
type Device struct {
	ID      string
	Healthy bool
	// Nodes are the NUMA nodes that the plugin names; empty when it names none, or none that the
	// machine has.
	Nodes topology.NodeSet
}

// Resource is what the plugins say about one extended resource.
type Resource struct {
	Name string
	// Devices lists all devices, healthy and not, in natural order of ids (CompareIDs).
	Devices []Device
	// Connected: a plugin is connected and has sent its first list.
	Connected bool
	// Problem says, for people, why it is not connected; empty when it is.
	Problem string
	// Preferred: the plugin answers GetPreferredAllocation.
	Preferred bool
	// PreStart: the plugin wants PreStartContainer before each start.
	PreStart bool
}

// Inventory is an immutable snapshot of every resource that plugins registered, with a version
// that grows with each change. Share it freely; never write to it.
type Inventory struct {
	Version   uint64
	Resources map[string]Resource
}
