package handover

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

var memoryFile = file{
	read: func(k *Kubelet, d dirs, now time.Time) (err error) {
		k.Memory, err = load(d, filepath.Join(d.root, memorystate.FileName), now,
			memorystate.Decode)
		return err
	},
	give:   Kubelet.giveMemory,
	export: exportMemory,
}

// exportMemory writes memory_manager_state. Blocks that are lent to an init container get all
// nodes of the lender's group, as the kubelet knows only whole groups.
func exportMemory(d dirs, state allocation.State, n Node) error {
	state = grouped(state)
	out := memorystate.Contents{PolicyName: kubeletconfig.NoneMemoryManagerPolicy}
	if n.Memory != nil {
		out = memorystate.Contents{
			PolicyName:   kubeletconfig.StaticMemoryManagerPolicy,
			MachineState: memorystate.Machine(n.Memory.Usage(state.Blocks())),
			Entries:      holdings(state, memoryEntry),
			PodEntries:   pools(state, memoryPool),
		}
	}
	content, err := memorystate.Encode(out)
	return export(d.root, memorystate.FileName, content, err)
}

// grouped returns the state with each block on all nodes of its group.
func grouped(s allocation.State) allocation.State {
	s.Pods = maps.Clone(s.Pods)
	for uid, pod := range s.Pods {
		all := allocation.BlocksOf(slices.Collect(maps.Values(pod.Containers)))
		pod.Containers = maps.Clone(pod.Containers)
		for name, c := range pod.Containers {
			blocks := slices.Clone(c.Memory())
			for i, b := range blocks {
				if nodes, lent := b.Lent(all); lent {
					blocks[i].Nodes = nodes
				}
			}
			pod.Containers[name] = c.With(allocation.Memory(blocks))
		}
		s.Pods[uid] = pod
	}
	return s
}

func memoryEntry(c allocation.Container) ([]memorystate.Block, bool) {
	return memorystate.Entry(c.Memory()), len(c.Memory()) > 0
}

func memoryPool(c allocation.Container) (memorystate.PodEntry, bool) {
	blocks, has := memoryEntry(c)
	return memorystate.PodEntry{MemoryBlocks: blocks}, has
}

// giveMemory adds the memory that the kubelet gave to the pod as a whole, and to containers: those that
// share what is left of the pod's have entries too.
func (k Kubelet) giveMemory(n Node, observed cri.Pod, out map[string]allocation.Container) error {
	if n.Memory == nil {
		return nil // policy none has no memory on certain nodes
	}
	uid := string(observed.UID)
	pool, err := blocksOn(n.Nodes, k.Memory.PodEntries[uid].MemoryBlocks)
	if err != nil {
		return err
	}
	if len(pool) > 0 {
		out[allocation.WholePod] = out[allocation.WholePod].With(allocation.Memory(pool))
	}
	for name, entry := range k.Memory.Entries[uid] {
		blocks, err := blocksOn(n.Nodes, entry)
		if err != nil {
			return fmt.Errorf("container %s: %w", name, err)
		}
		out[name] = out[name].With(allocation.Memory(blocks))
	}
	return nil
}

// blocksOn returns the kubelet's blocks in our order.
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
	double := order(blocks, func(b memory.Block) v1.ResourceName { return b.Resource })
	if double != "" {
		return nil, fmt.Errorf("the kubelet has two blocks of %s", double)
	}
	return blocks, nil
}
