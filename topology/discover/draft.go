package discover

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/numalet/numalet/topology"
)

// draft holds the CPUs of a machine file by id while its fields are read: first nodes, then
// offline, sockets, cores, l3 and isolated in this order, then finish.
type draft map[int]*topology.CPU

// addNode adds the CPUs of a node; the node counts as a socket until setSockets.
func (d draft) addNode(node topology.NodeID, path string, list scalar) error {
	ids, err := cpuList(path, list)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if other, ok := d[id]; ok {
			return fmt.Errorf("%s: cpu %d is on node %d too; leave it out of one",
				path, id, other.Node)
		}
		d.add(id, node)
	}
	return nil
}

func (d draft) add(id int, node topology.NodeID) *topology.CPU {
	d[id] = &topology.CPU{
		ID: id, Node: node, Socket: topology.SocketID(node), Core: topology.CoreID(id), L3: noL3,
	}
	return d[id]
}

func (d draft) setOffline(list scalar) error {
	ids, err := cpuList("offline", list)
	if err != nil {
		return err
	}
	for _, id := range ids {
		cpu, ok := d[id]
		if !ok {
			cpu = d.add(id, topology.NoNode)
		}
		cpu.Offline = true
	}
	return nil
}

func (d draft) setSockets(lists map[string]scalar) error {
	if len(lists) == 0 {
		return nil
	}
	for _, cpu := range d {
		cpu.Socket = noSocket
	}
	taken := map[int]bool{}
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		path := fmt.Sprintf("sockets[%s]", key)
		socket, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			return fmt.Errorf("sockets: %q is not a number; write {0: \"0-3\", 1: \"4-7\"}",
				shorten(key))
		}
		err = d.each(path, lists[key], taken, func(cpu *topology.CPU) {
			cpu.Socket = topology.SocketID(socket)
		})
		if err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d)) {
		if cpu := d[id]; cpu.Socket == noSocket && !cpu.Offline {
			return fmt.Errorf("sockets: cpu %d is in none; add it to one, or leave sockets out", id)
		}
	}
	return nil
}

func (d draft) setCores(entries []scalar) error {
	taken := map[int]bool{}
	for i, entry := range entries {
		path := fmt.Sprintf("cores[%d]", i)
		cores, err := parseThreads(string(entry))
		if err != nil {
			return fmt.Errorf("%s: %w; write it like \"0,8\" or \"0-7+8-15\"", path, err)
		}
		for _, threads := range cores {
			slices.Sort(threads)
			err := d.eachOf(path, threads, taken, func(cpu *topology.CPU) {
				cpu.Core = topology.CoreID(threads[0])
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d draft) setL3(lists []scalar) error {
	taken := map[int]bool{}
	for i, list := range lists {
		lowest := noL3
		err := d.each(fmt.Sprintf("l3[%d]", i), list, taken, func(cpu *topology.CPU) {
			if lowest == noL3 {
				lowest = topology.L3ID(cpu.ID)
			}
			cpu.L3 = lowest
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d draft) setIsolated(list scalar) error {
	return d.each("isolated", list, map[int]bool{}, func(cpu *topology.CPU) { cpu.Isolated = true })
}

// finish returns the CPUs by ascending id, all of them placed.
func (d draft) finish() []topology.CPU {
	var cpus []topology.CPU
	for _, id := range slices.Sorted(maps.Keys(d)) {
		cpus = append(cpus, *d[id])
	}
	groupWithoutCache(cpus)
	return cpus
}

// each calls set for the CPUs of a list by ascending id.
func (d draft) each(path string, list scalar, taken map[int]bool, set func(*topology.CPU)) error {
	ids, err := cpuList(path, list)
	if err != nil {
		return err
	}
	return d.eachOf(path, ids, taken, set)
}

func (d draft) eachOf(path string, ids []int, taken map[int]bool, set func(*topology.CPU)) error {
	for _, id := range ids {
		cpu, ok := d[id]
		if !ok {
			return fmt.Errorf("%s: cpu %d is in no node; add it to the cpus of one", path, id)
		}
		if taken[id] {
			return fmt.Errorf("%s: cpu %d is listed twice; leave it out of one", path, id)
		}
		taken[id] = true
		set(cpu)
	}
	return nil
}

func cpuList(path string, list scalar) ([]int, error) {
	ids, err := parseList(string(list))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; write it like \"0-3,8\"", path, err)
	}
	return ids, nil
}
