package discover

import (
	"fmt"
	"slices"

	"github.com/numalet/numalet/topology"
)

const cpuDir = "sys/devices/system/cpu"

// cpus reads the logical CPUs. nodeOf maps each one to its node.
func (t tree) cpus(nodeOf map[int]topology.NodeID) ([]topology.CPU, error) {
	ids, online, err := t.presentCPUs()
	if err != nil {
		return nil, err
	}
	// Old kernels, and captures by old agents, lack the list of isolcpus=.
	isolated, err := t.list(cpuDir + "/isolated")
	if err != nil && !absent(err) {
		return nil, err
	}
	cpus := make([]topology.CPU, 0, len(ids))
	for _, id := range ids {
		cpu := topology.CPU{
			ID: id, Node: topology.NoNode, Socket: noSocket,
			Core: topology.CoreID(id), L3: noL3, Offline: !online[id],
			Isolated: slices.Contains(isolated, id),
		}
		if node, ok := nodeOf[id]; ok {
			cpu.Node = node
		}
		if !cpu.Offline {
			if err := t.placeCPU(&cpu); err != nil {
				return nil, err
			}
		}
		cpus = append(cpus, cpu)
	}
	placeOffline(cpus)
	groupWithoutCache(cpus)
	return cpus, nil
}

const (
	// noSocket is the socket of an offline CPU whose socket is unknown.
	noSocket topology.SocketID = -1
	// noL3 marks CPUs for groupWithoutCache.
	noL3 topology.L3ID = -1
)

// presentCPUs lists the present CPUs, and which of them are online. The whole-machine lists are
// authoritative; snapshots may only have the per-CPU files, or neither.
func (t tree) presentCPUs() (ids []int, online map[int]bool, err error) {
	if ids, err = t.numbered(cpuDir, "cpu"); err != nil {
		return nil, nil, fmt.Errorf("list CPUs: %w", err)
	}
	present, err := t.list(cpuDir + "/present")
	switch {
	case err == nil:
		ids = slices.DeleteFunc(ids, func(id int) bool { return !slices.Contains(present, id) })
	case !absent(err):
		return nil, nil, err
	}
	if len(ids) == 0 {
		return nil, nil, fmt.Errorf("list CPUs: %s has no cpu directory", cpuDir)
	}
	online = map[int]bool{}
	whole, err := t.list(cpuDir + "/online")
	if err == nil {
		for _, id := range whole {
			online[id] = true
		}
		return ids, online, nil
	}
	if !absent(err) {
		return nil, nil, err
	}
	for _, id := range ids {
		state, err := t.number(fmt.Sprintf("%s/cpu%d/online", cpuDir, id))
		if err != nil && !absent(err) {
			return nil, nil, err
		}
		online[id] = absent(err) || state == 1 // a CPU that cannot go offline has no such file
	}
	return ids, online, nil
}

// placeCPU sets socket, core and cache of an online CPU.
func (t tree) placeCPU(cpu *topology.CPU) error {
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, cpu.ID)
	socket, err := t.number(dir + "/topology/physical_package_id")
	if err != nil && !absent(err) {
		return err
	}
	cpu.Socket = topology.SocketID(max(socket, 0)) // -1: the platform does not say
	threads, err := t.list(dir + "/topology/thread_siblings_list")
	if err != nil && !absent(err) {
		return err
	}
	if len(threads) > 0 {
		cpu.Core = topology.CoreID(threads[0])
	}
	shared, err := t.lastLevelCache(dir + "/cache")
	if err != nil {
		return err
	}
	if len(shared) > 0 {
		cpu.L3 = topology.L3ID(shared[0])
	}
	return nil
}

// lastLevelCache lists the CPUs that share the level 3 cache described below dir, or else the cache
// of the highest level; nil if there is no cache.
func (t tree) lastLevelCache(dir string) ([]int, error) {
	indexes, err := t.numbered(dir, "index")
	if err != nil {
		if absent(err) {
			return nil, nil
		}
		return nil, err
	}
	best, bestLevel := []int(nil), 0
	for _, index := range indexes {
		at := fmt.Sprintf("%s/index%d", dir, index)
		level, err := t.number(at + "/level")
		if absent(err) {
			continue // a directory of another kind
		}
		if err != nil {
			return nil, err
		}
		if kind, err := t.text(at + "/type"); err == nil && kind == "Instruction" {
			continue
		}
		if bestLevel == 3 || level < bestLevel && level != 3 {
			continue
		}
		shared, err := t.list(at + "/shared_cpu_list")
		if err != nil && !absent(err) {
			return nil, err
		}
		if len(shared) > 0 {
			best, bestLevel = shared, level
		}
	}
	return best, nil
}

// placeOffline gives offline CPUs the socket of their node, if the node has only one.
func placeOffline(cpus []topology.CPU) {
	socketOf := map[topology.NodeID]topology.SocketID{}
	for _, c := range cpus {
		if c.Offline {
			continue
		}
		if socket, ok := socketOf[c.Node]; ok && socket != c.Socket {
			socketOf[c.Node] = noSocket
			continue
		}
		socketOf[c.Node] = c.Socket
	}
	for i, c := range cpus {
		if socket, ok := socketOf[c.Node]; ok && c.Offline {
			cpus[i].Socket = socket
		}
	}
}

// groupWithoutCache puts the online CPUs without a cache group (L3 is noL3) into one group per
// socket, and each such offline CPU into its own group. cpus are in ascending order of ids.
func groupWithoutCache(cpus []topology.CPU) {
	first := map[topology.SocketID]topology.L3ID{}
	for i, c := range cpus {
		switch lowest, ok := first[c.Socket]; {
		case c.L3 != noL3:
		case c.Offline:
			cpus[i].L3 = topology.L3ID(c.ID)
		case ok:
			cpus[i].L3 = lowest
		default:
			first[c.Socket] = topology.L3ID(c.ID)
			cpus[i].L3 = topology.L3ID(c.ID)
		}
	}
}
