package allocation

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/topology/files"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// Export writes the kubelet's device checkpoint into dir, for the tools that read it and for a
// node that goes back to the kubelet.
func Export(dir string, state State, inventory deviceplugin.Inventory) error {
	content, err := checkpoint.Encode(entries(state), healthy(inventory))
	if err != nil {
		return fmt.Errorf("export %s: %w", checkpoint.FileName, err)
	}
	return export(filepath.Join(dir, checkpoint.FileName), content)
}

// ExportCPUs writes the kubelet's cpu_manager_state into dir, likewise. Without a static policy
// nobody has CPUs of its own.
func ExportCPUs(dir string, state State, static *cpumanager.Static) error {
	out := cpucheckpoint.State{Policy: "none"}
	if static != nil {
		out = cpucheckpoint.State{
			Policy: "static", Default: static.KubeletDefault(state.CPUs()), Entries: exclusive(state),
		}
	}
	content, err := cpucheckpoint.Encode(out)
	if err != nil {
		return fmt.Errorf("export %s: %w", cpucheckpoint.FileName, err)
	}
	return export(filepath.Join(dir, cpucheckpoint.FileName), content)
}

// ExportMemory writes the kubelet's memory_manager_state into dir, likewise.
func ExportMemory(dir string, state State, static *memory.Static) error {
	out := memorystate.Contents{PolicyName: kubeletconfig.NoneMemoryManagerPolicy}
	if static != nil {
		out = memorystate.Contents{
			PolicyName:   kubeletconfig.StaticMemoryManagerPolicy,
			MachineState: memorystate.Machine(static.Usage(state.Blocks())),
			Entries:      memoryEntries(state),
		}
	}
	content, err := memorystate.Encode(out)
	if err != nil {
		return fmt.Errorf("export %s: %w", memorystate.FileName, err)
	}
	return export(filepath.Join(dir, memorystate.FileName), content)
}

// memoryEntries has the blocks of every container that has some.
func memoryEntries(state State) memorystate.ContainerMemoryAssignments {
	out := memorystate.ContainerMemoryAssignments{}
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			if len(c.Memory) == 0 {
				continue
			}
			if out[string(uid)] == nil {
				out[string(uid)] = map[string][]memorystate.Block{}
			}
			out[string(uid)][name] = memorystate.Entry(c.Memory)
		}
	}
	return out
}

// export replaces path by content. A file that is right already is left alone, and what is no file
// is moved aside. It is not synced: it is made from the state, which is, and made again at the next
// start.
func export(path string, content []byte) error {
	old, err := files.Read(path, int64(len(content)))
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	if errors.Is(err, files.ErrNotRegular) {
		if _, err := files.MoveAside(path, time.Now()); err != nil {
			return fmt.Errorf("export %s: %w", filepath.Base(path), err)
		}
	}
	return files.Replace(path, content)
}

// exclusive has the CPUs of every container that has some of its own.
func exclusive(state State) map[string]map[string]cpuset.CPUSet {
	out := map[string]map[string]cpuset.CPUSet{}
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			if c.CPUs.IsEmpty() {
				continue
			}
			if out[string(uid)] == nil {
				out[string(uid)] = map[string]cpuset.CPUSet{}
			}
			out[string(uid)][name] = c.CPUs
		}
	}
	return out
}

// entries lists every device set, ordered by pod, container and resource.
func entries(state State) []checkpoint.PodDevicesEntry {
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
func byNode(d DeviceSet) checkpoint.DevicesPerNUMA {
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

func healthy(inventory deviceplugin.Inventory) map[string][]string {
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
