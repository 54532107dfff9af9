package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/cpuset"

	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/topology"
)

// Kubelet is what a kubelet recorded on this node before the agent took over.
type Kubelet struct {
	CPUs    cpucheckpoint.State
	Devices []checkpoint.PodDevicesEntry
}

// ReadKubelet reads the kubelet's files: cpu_manager_state in root, kubelet_internal_checkpoint in
// deviceDir. A file that does not exist says nothing. One that cannot be used is moved aside, never
// deleted, and its new name is in the error; what the other says is good all the same.
func ReadKubelet(root, deviceDir string, now time.Time) (Kubelet, error) {
	var k Kubelet
	cpuErr := readIfThere(filepath.Join(root, cpucheckpoint.FileName), now,
		func(raw []byte) (err error) {
			k.CPUs, err = cpucheckpoint.Decode(raw)
			return err
		})
	deviceErr := readIfThere(filepath.Join(deviceDir, checkpoint.FileName), now,
		func(raw []byte) (err error) {
			k.Devices, _, err = checkpoint.Decode(raw)
			return err
		})
	return k, errors.Join(cpuErr, deviceErr)
}

func readIfThere(path string, now time.Time, decode func([]byte) error) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the kubelet's assignments: %w", err)
	}
	if err = decode(raw); err == nil {
		return nil
	}
	aside, moveErr := moveAside(path, now)
	if moveErr != nil {
		return errors.Join(err, moveErr)
	}
	return fmt.Errorf("%w; moved to %s, going on without it", err, aside)
}

// On is the account of the kubelet's files on a machine with these CPUs.
func (k Kubelet) On(online cpuset.CPUSet) Account {
	return func(observed cri.Pod) (map[string]Container, error) {
		uid := string(observed.UID)
		if cpus, ok := k.CPUs.PodEntries[uid]; ok {
			return nil, fmt.Errorf("the kubelet gave CPUs %s to the pod as a whole, which this agent "+
				"does not do", cpus)
		}
		out := map[string]Container{}
		for name, cpus := range k.CPUs.Entries[uid] {
			if absent := cpus.Difference(online); !absent.IsEmpty() {
				return nil, fmt.Errorf("the kubelet gave CPUs %s to container %s, %s are not online",
					cpus, name, absent)
			}
			out[name] = Container{CPUs: cpus}
		}
		for _, e := range k.Devices {
			if e.PodUID != uid {
				continue
			}
			if _, err := e.Response(); err != nil {
				return nil, err
			}
			c := out[e.ContainerName]
			c.Devices = append(c.Devices, deviceSet(e))
			out[e.ContainerName] = c
		}
		for name, c := range out {
			slices.SortFunc(c.Devices, func(a, b DeviceSet) int {
				return cmp.Compare(a.Resource, b.Resource)
			})
			if double := doubled(c.Devices); double != "" {
				return nil, fmt.Errorf("the kubelet has two entries of container %s for %s", name, double)
			}
		}
		return out, nil
	}
}

// doubled is a resource that is twice in the sorted list, or "".
func doubled(sorted []DeviceSet) string {
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
func deviceSet(e checkpoint.PodDevicesEntry) DeviceSet {
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
	out := DeviceSet{Resource: e.ResourceName, IDs: e.IDs(), Answer: e.AllocResp}
	if out.Answer == nil {
		out.Answer = []byte{} // the plugin did answer
	}
	for _, id := range out.IDs {
		out.Nodes = append(out.Nodes, nodes[id])
	}
	return out
}
