package handover

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// Export writes the kubelet's device checkpoint into dir, for the tools that read it and for a
// node that goes back to the kubelet.
func Export(dir string, state allocation.State, inventory devicemanager.Inventory) error {
	content, err := checkpoint.Encode(entries(state), healthy(inventory))
	return export(dir, checkpoint.FileName, content, err)
}

// ExportCPUs writes the kubelet's cpu_manager_state into dir, likewise. Without a static policy
// nobody has CPUs of its own.
func ExportCPUs(dir string, state allocation.State, static *cpumanager.Static) error {
	out := cpucheckpoint.State{Policy: "none"}
	if static != nil {
		out = cpucheckpoint.State{
			Policy: "static", Default: static.KubeletDefault(state.CPUs()),
			Entries: holdings(state, exclusive),
		}
	}
	content, err := cpucheckpoint.Encode(out)
	return export(dir, cpucheckpoint.FileName, content, err)
}

// ExportMemory writes the kubelet's memory_manager_state into dir, likewise. In it what is lent to an
// init container is on all nodes of who lends it, as a kubelet knows no other nodes in a group.
func ExportMemory(dir string, state allocation.State, static *memory.Static) error {
	state = grouped(state)
	out := memorystate.Contents{PolicyName: kubeletconfig.NoneMemoryManagerPolicy}
	if static != nil {
		out = memorystate.Contents{
			PolicyName:   kubeletconfig.StaticMemoryManagerPolicy,
			MachineState: memorystate.Machine(static.Usage(state.Blocks())),
			Entries:      holdings(state, memoryEntry),
		}
	}
	content, err := memorystate.Encode(out)
	return export(dir, memorystate.FileName, content, err)
}

// grouped is the state in which each block is on the nodes of its group.
func grouped(s allocation.State) allocation.State {
	s.Pods = maps.Clone(s.Pods)
	for uid, pod := range s.Pods {
		all := allocation.BlocksOf(slices.Collect(maps.Values(pod.Containers)))
		pod.Containers = maps.Clone(pod.Containers)
		for name, c := range pod.Containers {
			c.Memory = slices.Clone(c.Memory)
			for i, b := range c.Memory {
				if nodes, lent := b.Lent(all); lent {
					c.Memory[i].Nodes = nodes
				}
			}
			pod.Containers[name] = c
		}
		s.Pods[uid] = pod
	}
	return s
}

// export renews a file in dir, unless its content could not be made.
func export(dir, name string, content []byte, err error) error {
	if err == nil {
		err = files.Renew(filepath.Join(dir, name), content)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	return nil
}

// holdings has, by pod and container, what of gives of those for which it gives something.
func holdings[T any](state allocation.State, of func(allocation.Container) (T, bool)) map[string]map[string]T {
	out := map[string]map[string]T{}
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			one, has := of(c)
			if !has {
				continue
			}
			if out[string(uid)] == nil {
				out[string(uid)] = map[string]T{}
			}
			out[string(uid)][name] = one
		}
	}
	return out
}

func exclusive(c allocation.Container) (cpuset.CPUSet, bool) { return c.CPUs, !c.CPUs.IsEmpty() }

func memoryEntry(c allocation.Container) ([]memorystate.Block, bool) {
	return memorystate.Entry(c.Memory), len(c.Memory) > 0
}

// entries lists every device set, ordered by pod, container and resource.
func entries(state allocation.State) []checkpoint.PodDevicesEntry {
	var out []checkpoint.PodDevicesEntry
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			for _, d := range c.Devices {
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
