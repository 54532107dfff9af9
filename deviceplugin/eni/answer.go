package eni

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/topology"
)

// Move says who moves an interface into a container.
type Move string

const (
	// ByNetwork: the pod network does, by a CNI plugin that reads the environment or device-info
	// files.
	ByNetwork Move = "network"
	// ByRuntime: the container runtime does, told by CDI.
	ByRuntime Move = "runtime"
)

// answer returns what a container gets with these interfaces of a resource.
func answer(resource string, all []Interface, move Move) (*v1beta1.ContainerAllocateResponse,
	error) {
	envs, err := variables(resource, all)
	if err != nil {
		return nil, err
	}
	out := &v1beta1.ContainerAllocateResponse{Envs: envs}
	nodes := sets.New[string]()
	for _, i := range all {
		nodes.Insert(i.Hardware.Nodes...)
		if move == ByRuntime {
			out.CdiDevices = append(out.CdiDevices,
				&v1beta1.CDIDevice{Name: resource + "=" + cdiName(i.ID)})
		}
	}
	for _, node := range sets.List(nodes) {
		out.Devices = append(out.Devices, &v1beta1.DeviceSpec{
			HostPath: node, ContainerPath: node, Permissions: "rw",
		})
	}
	return out, nil
}

// variables tell a container of its interfaces of a resource.
func variables(resource string, all []Interface) (map[string]string, error) {
	var addresses, names, macs []string
	about := map[string]any{}
	for _, i := range all {
		names, macs = append(names, i.Link.State.Name), append(macs, i.Link.State.MAC)
		if i.Hardware.PCI != "" {
			addresses = append(addresses, i.Hardware.PCI)
			about[i.Hardware.PCI] = info(i)
		}
	}
	out := map[string]string{
		envName("ENI", resource) + "_NAMES": strings.Join(names, ","),
		envName("ENI", resource) + "_MACS":  strings.Join(macs, ","),
	}
	if len(addresses) == 0 {
		return out, nil
	}
	text, err := json.Marshal(about)
	out[envName("PCIDEVICE", resource)] = strings.Join(addresses, ",")
	out[envName("PCIDEVICE", resource)+"_INFO"] = string(text)
	return out, err
}

// info returns a function's part of PCIDEVICE_..._INFO, in the format of the SR-IOV device plugin.
func info(i Interface) map[string]map[string]string {
	out := map[string]map[string]string{
		"generic": {"deviceID": i.Hardware.PCI},
		"netdev":  {"name": i.Link.State.Name, "mac": i.Link.State.MAC},
	}
	if len(i.Hardware.RDMA) > 0 {
		rdma := map[string]string{"rdma_devices": strings.Join(i.Hardware.RDMA, ",")}
		for _, node := range i.Hardware.Nodes {
			base := node[strings.LastIndexByte(node, '/')+1:]
			rdma[strings.TrimRight(base, "0123456789")] = node
		}
		out["rdma"] = rdma
	}
	return out
}

// envName returns a variable's name for a resource: PCIDEVICE_EXAMPLE_COM_ENI.
func envName(prefix, resource string) string {
	return prefix + "_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_", "-", "_").
		Replace(resource))
}

// cdiName makes an id fit for the name of a device in a CDI spec.
func cdiName(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune("_-.:", r):
			return r
		}
		return '_'
	}, id)
}

// device returns the list entry of an interface.
func device(r Record, trouble string) *v1beta1.Device {
	node := ptr.Deref(r.Home.Hardware.Node, int(topology.NoNode))
	return serve.Device(r.Home.ID, trouble == "", topology.NodeID(node))
}
