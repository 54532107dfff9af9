package handover

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

var deviceFile = file{
	read: func(k *Kubelet, d dirs, now time.Time) (err error) {
		k.Devices, err = load(d, filepath.Join(d.plugins, checkpoint.FileName), now,
			func(raw []byte) ([]checkpoint.PodDevicesEntry, error) {
				entries, _, err := checkpoint.Decode(raw)
				return entries, err
			})
		return err
	},
	give: func(k Kubelet, _ Node, observed cri.Pod, out map[string]allocation.Container) error {
		return k.giveDevices(out, string(observed.UID))
	},
	export: func(d dirs, state allocation.State, n Node) error {
		content, err := checkpoint.Encode(entries(state), healthy(n.Inventory))
		return export(d.plugins, checkpoint.FileName, content, err)
	},
}

// KnownResources lists, sorted, the device resources that pods hold and those that were registered
// with the kubelet that wrote the file in deviceDir. They are known before their plugins come back.
func KnownResources(s allocation.State, deviceDir string) []string {
	held := allocation.HoldingsOf(s.List()...).Devices()
	all := slices.AppendSeq(kubeletResources(deviceDir), maps.Keys(held))
	slices.Sort(all)
	return slices.Compact(all)
}

// kubeletResources ignores a file that cannot be used, which ReadKubelet reports.
func kubeletResources(deviceDir string) (out []string) {
	raw, err := files.Read(filepath.Join(deviceDir, checkpoint.FileName), maxFile)
	if err != nil {
		return nil
	}
	_, registered, err := checkpoint.Decode(raw)
	if err != nil {
		return nil
	}
	for name := range registered {
		if podspec.IsExtended(name) {
			out = append(out, name)
		}
	}
	return out
}

// giveDevices adds the devices that the kubelet gave to the pod's containers.
func (k Kubelet) giveDevices(out map[string]allocation.Container, uid string) error {
	sets := map[string]allocation.Devices{}
	for _, e := range k.Devices {
		if e.PodUID != uid {
			continue
		}
		if _, err := e.Response(); err != nil {
			return err
		}
		sets[e.ContainerName] = append(sets[e.ContainerName], deviceSet(e))
	}
	for name, all := range sets {
		double := order(all, func(d allocation.DeviceSet) string { return d.Resource })
		if double != "" {
			return fmt.Errorf("the kubelet has two entries of container %s for %s", name, double)
		}
		out[name] = out[name].With(all)
	}
	return nil
}

// order sorts by resource, and returns a resource that is there twice; "": none.
func order[T any, R ~string](all []T, resource func(T) R) (double R) {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(resource(a), resource(b)) })
	for i := 1; i < len(all); i++ {
		if resource(all[i]) == resource(all[i-1]) {
			return resource(all[i])
		}
	}
	return ""
}

// entries lists every device set, ordered by pod, container and resource.
func entries(state allocation.State) []checkpoint.PodDevicesEntry {
	var out []checkpoint.PodDevicesEntry
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			for _, d := range c.Devices() {
				out = append(out, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: name, ResourceName: d.Resource,
					DeviceIDs: byNode(d), AllocResp: d.Answer,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b checkpoint.PodDevicesEntry) int {
		return strings.Compare(a.PodUID+"\x00"+a.ContainerName+"\x00"+a.ResourceName,
			b.PodUID+"\x00"+b.ContainerName+"\x00"+b.ResourceName)
	})
	return out
}

// byNode groups ids by NUMA node, -1 for devices without one; a device of several nodes is in
// each of them, as the kubelet has it.
func byNode(d allocation.DeviceSet) checkpoint.DevicesPerNUMA {
	out := checkpoint.DevicesPerNUMA{}
	for i, id := range d.IDs {
		nodes := d.NodesOf(i)
		if nodes.IsEmpty() {
			out[checkpoint.NoNode] = append(out[checkpoint.NoNode], id)
		}
		for _, n := range nodes.IDs() {
			out[int64(n)] = append(out[int64(n)], id)
		}
	}
	return out
}

func healthy(inventory devicemanager.Inventory) map[string][]string {
	out := map[string][]string{}
	for name, r := range inventory.Resources {
		ids := []string{}
		for _, d := range r.Devices {
			if d.Healthy && r.Connected {
				ids = append(ids, d.ID)
			}
		}
		out[name] = ids
	}
	return out
}

// maxNode is the highest NUMA node that Linux has (CONFIG_NODES_SHIFT is 10 at most).
const maxNode = 1<<10 - 1

// deviceSet is the inverse of byNode.
func deviceSet(e checkpoint.PodDevicesEntry) allocation.DeviceSet {
	nodes := map[string]topology.NodeSet{}
	for _, key := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
		at := topology.NodeSet{}
		if key >= 0 && key <= maxNode {
			at = topology.NewNodeSet(topology.NodeID(key))
		}
		for _, id := range e.DeviceIDs[key] {
			nodes[id] = nodes[id].Union(at)
		}
	}
	out := allocation.DeviceSet{Resource: e.ResourceName, IDs: e.IDs(), Answer: e.AllocResp}
	if out.Answer == nil {
		out.Answer = []byte{} // the plugin did answer
	}
	for _, id := range out.IDs {
		out.Nodes = append(out.Nodes, nodes[id])
	}
	return out
}
