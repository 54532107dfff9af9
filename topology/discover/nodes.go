package discover

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/topology"
)

const nodeDir = "sys/devices/system/node"

// nodes reads the NUMA nodes, and the node of each CPU, online or not.
func (t tree) nodes() ([]topology.Node, map[int]topology.NodeID, error) {
	ids, err := t.numbered(nodeDir, "node")
	if err != nil && !absent(err) {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(ids) == 0 {
		return t.flat()
	}
	var nodes []topology.Node
	nodeOf := map[int]topology.NodeID{}
	for _, id := range ids {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		cpus, err := t.nodeCPUs(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, cpu := range cpus {
			if other, taken := nodeOf[cpu]; taken {
				return nil, nil, fmt.Errorf("cpu %d is on node %d and on node %d", cpu, other, id)
			}
			nodeOf[cpu] = topology.NodeID(id)
		}
		node := topology.Node{ID: topology.NodeID(id)}
		if node.MemoryBytes, err = t.nodeMemory(dir, len(ids)); err != nil {
			return nil, nil, err
		}
		if node.HugePages, err = t.hugePages(dir + "/hugepages"); err != nil {
			return nil, nil, err
		}
		if node.Distances, err = t.distances(dir, ids); err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nodeOf, nil
}

// flat returns the only node of a machine whose kernel has no NUMA.
func (t tree) flat() ([]topology.Node, map[int]topology.NodeID, error) {
	node := topology.Node{}
	var err error
	if node.MemoryBytes, err = t.memTotal("proc/meminfo"); err != nil {
		return nil, nil, err
	}
	if node.HugePages, err = t.hugePages("sys/kernel/mm/hugepages"); err != nil {
		return nil, nil, err
	}
	cpus, err := t.numbered(cpuDir, "cpu")
	if err != nil {
		return nil, nil, fmt.Errorf("list CPUs: %w", err)
	}
	nodeOf := map[int]topology.NodeID{}
	for _, cpu := range cpus {
		nodeOf[cpu] = node.ID
	}
	return []topology.Node{node}, nodeOf, nil
}

// nodeCPUs lists the CPUs of a node: cpulist has the online ones, the links cpuN also offline ones.
func (t tree) nodeCPUs(dir string) ([]int, error) {
	linked, err := t.numbered(dir, "cpu")
	if err != nil {
		return nil, err
	}
	listed, err := t.list(dir + "/cpulist")
	if err != nil && !absent(err) {
		return nil, err
	}
	return parseList(formatList(append(linked, listed...)))
}

// nodeMemory returns the memory of a node. A single node has the machine's memory: after memory is
// plugged into a virtual machine, the node's own number may lack it.
func (t tree) nodeMemory(dir string, nodes int) (uint64, error) {
	if nodes == 1 {
		if total, err := t.memTotal("proc/meminfo"); !absent(err) {
			return total, err
		}
	}
	return t.memTotal(dir + "/meminfo")
}

// hugePages reads the pools in a directory with one hugepages-NkB each.
func (t tree) hugePages(dir string) ([]topology.HugePages, error) {
	sizes, err := t.hugePageSizes(dir)
	if absent(err) {
		return nil, nil // a kernel without huge pages, or a node without memory
	}
	if err != nil {
		return nil, err
	}
	var pools []topology.HugePages
	for _, kib := range sizes {
		path := fmt.Sprintf("%s/hugepages-%dkB/nr_hugepages", dir, kib)
		count, err := t.number(path)
		if err != nil {
			return nil, err
		}
		if count < 0 {
			return nil, fmt.Errorf("read %s: %d is negative", path, count)
		}
		pools = append(pools, topology.HugePages{PageBytes: kib * 1024, Count: uint64(count)})
	}
	return pools, nil
}

// hugePageSizes lists the page sizes in KiB in ascending order.
func (t tree) hugePageSizes(dir string) ([]uint64, error) {
	entries, err := fs.ReadDir(t.fsys, dir)
	if err != nil {
		return nil, err
	}
	var sizes []uint64
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(name, "kB"), 10, 53)
		if err != nil || kib == 0 {
			return nil, fmt.Errorf("read %s/%s: not a page size", dir, e.Name())
		}
		sizes = append(sizes, kib)
	}
	slices.Sort(sizes)
	return sizes, nil
}

// distances reads the row of a node: one number for each node, by ascending id.
// https://docs.kernel.org/admin-guide/abi-stable.html#abi-sys-devices-system-node-nodex-distance
func (t tree) distances(dir string, ids []int) (map[topology.NodeID]int, error) {
	text, err := t.text(dir + "/distance")
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(text)
	if len(fields) != len(ids) {
		return nil, fmt.Errorf("read %s/distance: %d distances to %d nodes",
			dir, len(fields), len(ids))
	}
	row := map[topology.NodeID]int{}
	for i, field := range fields {
		if row[topology.NodeID(ids[i])], err = strconv.Atoi(field); err != nil {
			return nil, fmt.Errorf("read %s/distance: %q is not a number", dir, shorten(field))
		}
	}
	return row, nil
}
