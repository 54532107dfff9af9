package topology

import "k8s.io/utils/cpuset"

// cpuIndex holds a machine's CPUs by what they belong to.
type cpuIndex struct {
	cpus    map[int]CPU
	online  cpuset.CPUSet
	offline cpuset.CPUSet
	// isolated CPUs may be online or not.
	isolated cpuset.CPUSet

	byNode   map[NodeID]cpuset.CPUSet // online CPUs only, as in the next three
	bySocket map[SocketID]cpuset.CPUSet
	byCore   map[CoreID]cpuset.CPUSet
	byL3     map[L3ID]cpuset.CPUSet
}

func indexCPUs(cpus []CPU) cpuIndex {
	index := cpuIndex{cpus: make(map[int]CPU, len(cpus))}
	var online, offline, isolated []int
	node, socket := map[NodeID][]int{}, map[SocketID][]int{}
	core, l3 := map[CoreID][]int{}, map[L3ID][]int{}
	for _, c := range cpus {
		index.cpus[c.ID] = c
		if c.Isolated {
			isolated = append(isolated, c.ID)
		}
		if c.Offline {
			offline = append(offline, c.ID)
			continue
		}
		online = append(online, c.ID)
		node[c.Node] = append(node[c.Node], c.ID)
		socket[c.Socket] = append(socket[c.Socket], c.ID)
		core[c.Core] = append(core[c.Core], c.ID)
		l3[c.L3] = append(l3[c.L3], c.ID)
	}
	index.online, index.offline = cpuset.New(online...), cpuset.New(offline...)
	index.isolated = cpuset.New(isolated...)
	index.byNode, index.bySocket, index.byCore, index.byL3 = sets(node), sets(socket), sets(core), sets(l3)
	return index
}

// Online returns the online CPUs.
func (x *cpuIndex) Online() cpuset.CPUSet { return x.online }

// Offline returns the CPUs that are present but offline.
func (x *cpuIndex) Offline() cpuset.CPUSet { return x.offline }

// Isolated returns the CPUs, online or not, that the kernel was booted to leave alone (isolcpus=).
func (x *cpuIndex) Isolated() cpuset.CPUSet { return x.isolated }

// CPU looks up one logical CPU, online or not.
func (x *cpuIndex) CPU(id int) (CPU, bool) {
	c, ok := x.cpus[id]
	return c, ok
}

// CPUsOfNode returns the online CPUs of a node.
func (x *cpuIndex) CPUsOfNode(id NodeID) cpuset.CPUSet { return x.byNode[id] }

// CPUsOfNodes returns the online CPUs of all the nodes.
func (x *cpuIndex) CPUsOfNodes(nodes NodeSet) cpuset.CPUSet {
	out := cpuset.New()
	for _, id := range nodes.IDs() {
		out = out.Union(x.byNode[id])
	}
	return out
}

// CPUsOfSocket returns the online CPUs of a socket.
func (x *cpuIndex) CPUsOfSocket(id SocketID) cpuset.CPUSet { return x.bySocket[id] }

// CPUsOfCore returns the online threads of a core.
func (x *cpuIndex) CPUsOfCore(id CoreID) cpuset.CPUSet { return x.byCore[id] }

// CPUsOfL3 returns the online CPUs that share a last-level cache.
func (x *cpuIndex) CPUsOfL3(id L3ID) cpuset.CPUSet { return x.byL3[id] }

// Sockets lists the sockets that have online CPUs, ascending.
func (x *cpuIndex) Sockets() []SocketID { return sortedKeys(x.bySocket) }

// Cores lists the cores that have online CPUs, ascending.
func (x *cpuIndex) Cores() []CoreID { return sortedKeys(x.byCore) }

// L3s lists the last-level cache groups that have online CPUs, ascending.
func (x *cpuIndex) L3s() []L3ID { return sortedKeys(x.byL3) }

// NodesOf returns the nodes of the CPUs.
func (x *cpuIndex) NodesOf(cpus cpuset.CPUSet) NodeSet {
	var b nodeBits
	for _, id := range cpus.UnsortedList() {
		if c, ok := x.cpus[id]; ok && c.Node >= 0 {
			b.set(int(c.Node))
		}
	}
	return b.freeze()
}

// ThreadsPerCore returns the largest number of threads of a core, offline ones included.
func (x *cpuIndex) ThreadsPerCore() int {
	threads := map[CoreID]int{}
	most := 0
	for _, c := range x.cpus {
		threads[c.Core]++
		most = max(most, threads[c.Core])
	}
	return most
}

func sets[K comparable](members map[K][]int) map[K]cpuset.CPUSet {
	out := make(map[K]cpuset.CPUSet, len(members))
	for k, ids := range members {
		out[k] = cpuset.New(ids...)
	}
	return out
}
