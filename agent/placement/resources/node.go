package resources

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Settings are the node's settings for containers' and pods' cgroups.
type Settings struct {
	// ResourceOptions lack what follows from the hardware.
	cri.ResourceOptions
	Pids int64 // podPidsLimit
	// ResizesVolumes: emptyDirs in memory have other sizes when their pod is resized.
	ResizesVolumes bool
}

// Node says what containers and pods are to have now. All of it follows from the pods' specs as
// admitted, and from one state of the ledger, the hardware and the settings. New containers and
// cgroups are created with what it says, and the loop compares existing ones with it.
type Node struct {
	// ResourceOptions are complete.
	cri.ResourceOptions
	pids           int64
	resizesVolumes bool

	hardware machine.Hardware
	state    allocation.State
	online   cpus
	shared   func() cpus      // CPUs of containers without exclusive CPUs
	backed   topology.NodeSet // nodes with memory
}

// cpus is a CPU set with its text in the kernel's list syntax.
type cpus struct {
	cpuset.CPUSet
	text string
}

func cpusOf(set cpuset.CPUSet) cpus { return cpus{set, set.String()} }

func newNode(s Settings, h machine.Hardware, state allocation.State) Node {
	n := Node{ResourceOptions: s.ResourceOptions, pids: s.Pids, resizesVolumes: s.ResizesVolumes,
		hardware: h, state: state,
		backed: h.Machine.MemoryNodes(),
		shared: func() cpus { return cpusOf(shared(h, state)) }}
	n.online = cpusOf(h.Machine.Online())
	if h.CPUs != nil {
		n.online = cpusOf(h.CPUs.Online())
	}
	n.NodeMemory = int64(h.Machine.MemoryBytes())
	n.Memory.Allocatable = memoryOfPods(h)
	n.HugePageSizes = h.HugePageSizes()
	return n
}

// pool remembers the CPUs of containers without exclusive CPUs of one machine and one commit.
type pool struct {
	mu      sync.Mutex // guards the fields below
	policy  *cpumanager.Static
	version uint64
	cpus    cpus
	known   bool
}

func (p *pool) of(h machine.Hardware, state allocation.State) cpus {
	if h.CPUs == nil {
		return cpusOf(shared(h, state))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || p.policy != h.CPUs || p.version != state.Version {
		p.policy, p.version, p.known = h.CPUs, state.Version, true
		p.cpus = cpusOf(shared(h, state))
	}
	return p.cpus
}

// shared returns the CPUs of containers without exclusive CPUs.
func shared(h machine.Hardware, state allocation.State) cpuset.CPUSet {
	if h.CPUs != nil {
		return h.CPUs.Shared(state.CPUs())
	}
	return h.Machine.Online()
}

// container returns the resources of a container that runs in that place.
func (n *Node) container(
	pod *v1.Pod, c *v1.Container, at place,
) *runtimeapi.LinuxContainerResources {
	return cri.ContainerResources(pod, c, n.ResourceOptions, cri.Placement{
		CPUs: at.cpus.text, Mems: at.mems.String(), Exclusive: at.alone})
}

// Pod returns the values of a pod's cgroup. The CPU quota is lifted when all containers of the pod
// have exclusive CPUs: it could only throttle them.
func (n *Node) Pod(pod *v1.Pod) cgroups.Resources {
	exclusive := n.hardware.CPUs != nil && n.state.Pods[pod.UID].WhollyExclusive(pod)
	r := cgroups.PodResources(pod, cgroups.PodOptions{
		NoQuota: n.NoQuota || exclusive, Period: n.Period, Pids: n.pids})
	n.Memory.AddPod(&r, pod)
	return r
}

// place is where a container is to run. Empty sets change nothing.
type place struct {
	cpus      cpus
	mems      topology.NodeSet
	exclusive bool // the CPUs are, to the container or to its pod
	// within: a driver of resource claims may have confined the container to some of the CPUs.
	within bool
	// alone is set if the container has as many exclusive CPUs as it asked for, and not more: no
	// CPU quota may throttle it.
	alone bool
}

// place returns where a container is to run. has is what an existing container has, nil for one
// that is about to be created. The spec is nil while no source has named the pod.
//
// Under the static policy a container has its exclusive CPUs, those that it shares within its pod, or the
// shared pool. Under the policy
// none an existing container that got a set under another policy gets all CPUs.
func (n *Node) place(uid types.UID, name string, spec *v1.Pod, has *cri.Applied) place {
	held := n.state.Pods[uid].Containers[name]
	at := place{mems: n.mems(held.Memory(), has)}
	switch own := held.CPUs(); {
	case n.hardware.CPUs == nil && (has == nil || has.CPUs == ""):
	case n.hardware.CPUs == nil:
		at.cpus = n.online
	case own.IsEmpty():
		at.cpus, at.within = n.byClaims(held)
	default:
		at.cpus = cpusOf(own.Intersection(n.online.CPUSet)) // cgroup v1 refuses offline CPUs
		at.exclusive = true
		if spec != nil {
			asked := cpumanager.Unpadded(spec, name)
			at.alone = (asked == 0 || asked >= own.Size()) && !n.sharesWithinPod(spec, name)
		}
	}
	return at
}

// sharesWithinPod reports whether the container shares its CPUs with others of its pod.
func (n *Node) sharesWithinPod(pod *v1.Pod, name string) bool {
	held := n.state.Pods[pod.UID]
	if held.Pool().IsEmpty() {
		return false
	}
	c, _ := podspec.Find(pod, name)
	return c != nil && held.SharesCPUs(pod, c)
}

// byClaims returns the CPUs of a container without exclusive ones: those that drivers hand out by its
// claims, or the shared pool. within: a driver chooses among them.
func (n *Node) byClaims(held allocation.Container) (_ cpus, within bool) {
	own, unknown := held.Claims().CPUs()
	if unknown {
		own = n.hardware.CPUs.Lent()
	}
	if own = own.Intersection(n.online.CPUSet); own.IsEmpty() {
		return n.shared(), false
	}
	return cpusOf(own), unknown
}

// mems returns the memory nodes of a container. An existing one that was created with some has the
// nodes of its assigned memory under whatever policy, else those it was created with, without nodes
// that have no memory now. A later assignment does not move the memory of a container.
func (n *Node) mems(blocks []memory.Block, has *cri.Applied) (nodes topology.NodeSet) {
	switch {
	case has == nil:
		return n.hardware.MemoryNodes(blocks)
	case has.Mems == "":
		return nodes
	}
	for _, block := range blocks {
		nodes = nodes.Union(block.Nodes)
	}
	if nodes.IsEmpty() {
		var err error
		if nodes, err = topology.ParseNodeSet(has.Mems); err != nil {
			return topology.NodeSet{} // not in the kernel's format
		}
	}
	return nodes.Intersect(n.backed)
}

// ownQuota returns the CPU quota of a container with exclusive CPUs, zero if it has none or it is
// not known.
func (n *Node) ownQuota(uid types.UID, name string, spec *v1.Pod, at place) cgroups.CPULimit {
	if spec == nil || n.state.Pods[uid].Containers[name].CPUs().IsEmpty() {
		return cgroups.CPULimit{}
	}
	if at.alone {
		return cgroups.CPULimit{Quota: cgroups.Unlimited}
	}
	c, _ := podspec.Find(spec, name)
	if c == nil {
		return cgroups.CPULimit{}
	}
	return containerLimits(n.container(spec, c, at)).quota
}

// pinned reports whether a container of the pod, of those that the runtime has, has exclusive CPUs
// and lives.
func (n *Node) pinned(pod cri.Pod) bool {
	held := n.state.Pods[pod.UID]
	for _, c := range pod.Containers {
		if lives(c) && !held.Containers[c.Name].CPUs().IsEmpty() {
			return true
		}
	}
	return false
}

func lives(c cri.Container) bool {
	return c.State == cri.ContainerRunning || c.State == cri.ContainerCreated
}
