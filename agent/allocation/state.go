package allocation

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// State is everything that is assigned, an immutable snapshot.
type State struct {
	// Version grows with each commit.
	Version uint64
	Pods    map[types.UID]Pod
	// Owed is what plugins are still to hear of, one for a resource of a pod, by these.
	Owed []Owed
}

// Pod is what one pod holds.
type Pod struct {
	UID       types.UID
	Namespace string
	Name      string
	// BootID is the kernel's boot id when the devices were allocated
	// (/proc/sys/kernel/random/boot_id). Answers of plugins are void under another one.
	BootID     string
	Containers map[string]Container
	// Version is that of the state with which this was put; 0: it was read from a file, or is in no
	// state.
	Version uint64
}

// Container is what one container holds.
type Container struct {
	// CPUs are exclusive; empty: the container runs in the shared pool.
	CPUs cpuset.CPUSet
	// Memory has one block per resource, ordered by resource name. Containers that come later have
	// taken over what an init container's lacks.
	Memory []memory.Block
	// Devices has one entry per resource, ordered by resource name.
	Devices []DeviceSet
}

// DeviceSet is the devices of one resource that a container holds.
type DeviceSet struct {
	Resource string
	// IDs in ascending order, and the NUMA nodes of each as its plugin named them when it was
	// chosen; Nodes is empty, or as long as IDs.
	IDs   []string
	Nodes []topology.NodeSet
	// Answer is the plugin's ContainerAllocateResponse as protobuf; nil until Allocate was called.
	Answer []byte
}

// NodesOf is where the i-th device is; empty: not known, or nowhere in particular.
func (d DeviceSet) NodesOf(i int) topology.NodeSet {
	if i >= len(d.Nodes) {
		return topology.NodeSet{}
	}
	return d.Nodes[i]
}

// IsEmpty reports whether the pod holds nothing, so that there is nothing to remember.
func (p Pod) IsEmpty() bool {
	for _, c := range p.Containers {
		if !c.IsEmpty() {
			return false
		}
	}
	return true
}

// CPUs is the union of the exclusive CPUs of the pod's containers.
func (p Pod) CPUs() cpuset.CPUSet { return exclusiveOf([]Pod{p}) }

// exclusiveOf makes one set of all at once: a union of two copies both.
func exclusiveOf(pods []Pod) cpuset.CPUSet {
	all := make([]cpuset.CPUSet, 0, len(pods))
	for _, p := range pods {
		for _, c := range p.Containers {
			all = append(all, c.CPUs)
		}
	}
	return cpuset.New().Union(all...)
}

// IsEmpty reports whether the container holds nothing.
func (c Container) IsEmpty() bool {
	return c.CPUs.IsEmpty() && len(c.Memory) == 0 && len(c.Devices) == 0
}

// device is the container's set of one resource.
func (c Container) device(resource string) (DeviceSet, bool) {
	i, found := slices.BinarySearchFunc(c.Devices, resource, func(d DeviceSet, name string) int {
		return cmp.Compare(d.Resource, name)
	})
	if !found {
		return DeviceSet{}, false
	}
	return c.Devices[i], true
}

// CPUs is the union of all exclusive CPUs.
func (s State) CPUs() cpuset.CPUSet { return exclusiveOf(s.List()) }

// List is every pod's assignment, in no order.
func (s State) List() []Pod { return slices.Collect(maps.Values(s.Pods)) }

// Taken is what pods hold together.
type Taken struct {
	CPUs   cpuset.CPUSet
	Memory []memory.Block // in no order
	// Devices maps resource name to the ids taken.
	Devices map[string]sets.Set[string]
}

// TakenBy sums up what the pods hold.
func TakenBy(pods ...Pod) Taken {
	t := Taken{
		CPUs: exclusiveOf(pods), Memory: memoryOf(pods), Devices: map[string]sets.Set[string]{},
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				t.add(d)
			}
		}
	}
	return t
}

func (t Taken) add(d DeviceSet) {
	if t.Devices[d.Resource] == nil {
		t.Devices[d.Resource] = sets.New[string]()
	}
	t.Devices[d.Resource].Insert(d.IDs...)
}

// equal reports whether both are the same, blocks of memory in the same order.
func (t Taken) equal(o Taken) bool {
	return t.CPUs.Equals(o.CPUs) && slices.Equal(t.Memory, o.Memory) &&
		maps.EqualFunc(t.Devices, o.Devices, sets.Set[string].Equal)
}

// With returns the state after the changes: put entries replace or add, dropped ones go.
func (s State) With(changes []Change) State {
	next := State{Version: s.Version + 1, Pods: maps.Clone(s.Pods), Owed: s.Owed}
	if next.Pods == nil {
		next.Pods = map[types.UID]Pod{}
	}
	for _, c := range changes {
		switch {
		case c.Drop != "":
			delete(next.Pods, c.Drop)
		case c.Put.UID != "":
			c.Put.Version = next.Version
			next.Pods[c.Put.UID] = c.Put
		}
		for _, o := range c.Owe {
			next.owe(o)
		}
		if c.Settle.UID != "" {
			next.settle(c.Settle)
		}
	}
	return next
}

// Change is one step of a commit: Put a pod's assignment, or Drop that of a UID, each with what
// their plugins are to hear of that, or Settle what one has heard.
type Change struct {
	Put    Pod
	Drop   types.UID
	Owe    []Owed
	Settle Owed
}

// Overlaps reports whether both cannot be had at once. Of memory on a common node it says so although
// there may be enough for both.
func (t Taken) Overlaps(other Taken) bool {
	if !t.CPUs.Intersection(other.CPUs).IsEmpty() {
		return true
	}
	for resource, ids := range t.Devices {
		if ids.HasAny(other.Devices[resource].UnsortedList()...) {
			return true
		}
	}
	return slices.ContainsFunc(t.Memory, func(a memory.Block) bool {
		return slices.ContainsFunc(other.Memory, func(b memory.Block) bool {
			return a.Resource == b.Resource && !a.Nodes.Intersect(b.Nodes).IsEmpty()
		})
	})
}
