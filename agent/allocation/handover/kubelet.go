package handover

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
	"github.com/numalet/numalet/topology/podspec"
)

// maxFile bounds the kubelet's files, in bytes.
const maxFile = 256 << 20

// Kubelet is what a kubelet recorded on this node before the agent took over.
type Kubelet struct {
	CPUs    cpucheckpoint.State
	Memory  memorystate.Contents
	Devices []checkpoint.PodDevicesEntry
}

// ReadKubelet reads the kubelet's files: cpu_manager_state and memory_manager_state in root,
// kubelet_internal_checkpoint in deviceDir. A file that does not exist says nothing. One that
// cannot be used is moved aside, never deleted, and its new name is in the error; what the others
// say is good all the same.
func ReadKubelet(root, deviceDir string, now time.Time) (Kubelet, error) {
	var k Kubelet
	devices := func(raw []byte) ([]checkpoint.PodDevicesEntry, error) {
		entries, _, err := checkpoint.Decode(raw)
		return entries, err
	}
	var cpus, memory, device error
	k.CPUs, cpus = files.Load(filepath.Join(root, cpucheckpoint.FileName), maxFile, now,
		cpucheckpoint.Decode)
	k.Memory, memory = files.Load(filepath.Join(root, memorystate.FileName), maxFile, now,
		memorystate.Decode)
	k.Devices, device = files.Load(filepath.Join(deviceDir, checkpoint.FileName), maxFile, now, devices)
	return k, errors.Join(cpus, memory, device)
}

// KubeletResources lists the device resources that plugins registered with the kubelet that wrote
// the files in deviceDir. A file that cannot be used says nothing here; ReadKubelet tells of it.
func KubeletResources(deviceDir string) (out []string) {
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

// On is the account of the kubelet's files on a machine with these CPUs and nodes. What the kubelet
// gave to a pod as a whole, and not to one container of it, each of the others has together: nobody
// else gets it until the pod ends.
func (k Kubelet) On(online cpuset.CPUSet, nodes topology.NodeSet) Account {
	return func(observed cri.Pod) (_ map[string]allocation.Container, err error) {
		uid := string(observed.UID)
		out := map[string]allocation.Container{}
		for name, cpus := range k.CPUs.Entries[uid] {
			if absent := cpus.Difference(online); !absent.IsEmpty() {
				return nil, fmt.Errorf("the kubelet gave CPUs %s to container %s, %s are not "+
					"online", cpus, name, absent)
			}
			out[name] = allocation.Container{CPUs: cpus}
		}
		for name, entry := range k.Memory.Entries[uid] {
			c := out[name]
			if c.Memory, err = blocksOn(nodes, entry); err != nil {
				return nil, fmt.Errorf("container %s: %w", name, err)
			}
			out[name] = c
		}
		if absent := k.CPUs.PodEntries[uid].Difference(online); !absent.IsEmpty() {
			return nil, fmt.Errorf("the kubelet gave CPUs %s to the pod, %s are not online",
				k.CPUs.PodEntries[uid], absent)
		}
		together, err := blocksOn(nodes, k.Memory.PodEntries[uid].MemoryBlocks)
		if err != nil {
			return nil, err
		}
		share(out, observed, allocation.Container{CPUs: k.CPUs.PodEntries[uid], Memory: together})
		return out, k.addDevices(out, uid)
	}
}

// share gives what a pod has as a whole, less what containers of it have, to the others that there
// are. The first of them has the memory, and the others are on its nodes.
func share(out map[string]allocation.Container, observed cri.Pod, whole allocation.Container) {
	left := whole
	for _, c := range out {
		left.CPUs = left.CPUs.Difference(c.CPUs)
		left.Memory = memory.Reuse(left.Memory, c.Memory)
	}
	for _, name := range slices.Sorted(maps.Keys(observed.Records())) {
		c := out[name]
		if c.CPUs.IsEmpty() && !left.CPUs.IsEmpty() {
			c.CPUs = left.CPUs
		}
		if len(c.Memory) == 0 && len(left.Memory) > 0 {
			c.Memory = left.Memory
			left.Memory = memory.Reuse(left.Memory, left.Memory)
		}
		if !c.IsEmpty() {
			out[name] = c
		}
	}
}

// addDevices adds what the device manager gave to containers of the pod.
func (k Kubelet) addDevices(out map[string]allocation.Container, uid string) error {
	for _, e := range k.Devices {
		if e.PodUID != uid {
			continue
		}
		if _, err := e.Response(); err != nil {
			return err
		}
		c := out[e.ContainerName]
		c.Devices = append(c.Devices, deviceSet(e))
		out[e.ContainerName] = c
	}
	for name, c := range out {
		slices.SortFunc(c.Devices, func(a, b allocation.DeviceSet) int {
			return cmp.Compare(a.Resource, b.Resource)
		})
		if double := doubled(c.Devices); double != "" {
			return fmt.Errorf("the kubelet has two entries of container %s for %s", name, double)
		}
	}
	return nil
}

// blocksOn are the kubelet's blocks in our order.
func blocksOn(nodes topology.NodeSet, entry []memorystate.Block) ([]memory.Block, error) {
	for _, b := range entry {
		for _, id := range b.NUMAAffinity {
			if id < 0 || !nodes.Has(topology.NodeID(id)) {
				return nil, fmt.Errorf("the kubelet gave it %s of NUMA node %d, which does not "+
					"exist", b.Type, id)
			}
		}
	}
	blocks := memorystate.Blocks(entry)
	slices.SortFunc(blocks, func(a, b memory.Block) int {
		return cmp.Compare(a.Resource, b.Resource)
	})
	for i := 1; i < len(blocks); i++ {
		if blocks[i].Resource == blocks[i-1].Resource {
			return nil, fmt.Errorf("the kubelet has two blocks of %s", blocks[i].Resource)
		}
	}
	return blocks, nil
}

// doubled is a resource that is twice in the sorted list, or "".
func doubled(sorted []allocation.DeviceSet) string {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Resource == sorted[i-1].Resource {
			return sorted[i].Resource
		}
	}
	return ""
}

// maxNode is the highest NUMA node that Linux has (CONFIG_NODES_SHIFT is 10 at most).
const maxNode = 1<<10 - 1

// deviceSet is the opposite of byNode.
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
