package memory

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// Usage describes one node while some blocks are held.
type Usage struct {
	Node topology.NodeID
	// Group is the nodes of the blocks that name the node, or just the node.
	Group topology.NodeSet
	// Blocks counts the blocks that name the node, also those of size 0.
	Blocks int
	// Total, Reserved (never allocated), Allocatable and Free are bytes by resource.
	Total, Reserved, Allocatable, Free map[v1.ResourceName]uint64
}

// Usage lists all nodes by ascending id. A block with several nodes fills the lowest ones first, as
// far as they have room beside blocks with fewer nodes. The caller owns the maps.
func (s *Static) Usage(held []Block) []Usage {
	out := make([]Usage, len(s.nodes))
	for i, n := range s.nodes {
		out[i] = Usage{
			Node: n.id, Group: topology.NewNodeSet(n.id), Total: maps.Clone(n.total),
			Reserved: maps.Clone(n.reserved), Allocatable: maps.Clone(n.allocatable),
			Free: maps.Clone(n.allocatable),
		}
	}
	for _, b := range narrowFirst(held) {
		fill(out, b)
	}
	return out
}

// fill adds a block to the usage.
func fill(usage []Usage, b Block) {
	left := b.Size
	for i := range usage {
		u := &usage[i]
		if !b.Nodes.Has(u.Node) {
			continue
		}
		u.Blocks++
		u.Group = b.Nodes
		take := min(left, u.Free[b.Resource])
		if take > 0 {
			u.Free[b.Resource] -= take
			left -= take
		}
	}
}

// Misfits lists the held blocks that have no room any more: the node is gone, or has less than
// before. Wide blocks give way to narrow ones, then large ones to small ones.
func (s *Static) Misfits(held []Block) (misfits []Block) {
	all := topology.NewNodeSet()
	for _, n := range s.nodes {
		all = all.Union(topology.NewNodeSet(n.id))
	}
	usage := s.Usage(nil)
	for _, b := range narrowFirst(held) {
		if !b.Nodes.SubsetOf(all) || sumFree(usage, b.Nodes, b.Resource) < b.Size {
			misfits = append(misfits, b)
			continue
		}
		fill(usage, b)
	}
	return misfits
}

// HasRoom reports whether the blocks have room beside the held ones, on nodes in no other group.
// The blocks must be of different resources.
func (s *Static) HasRoom(held, blocks []Block) bool {
	usage := s.Usage(held)
	return !slices.ContainsFunc(blocks, func(b Block) bool {
		return sumFree(usage, b.Nodes, b.Resource) < b.Size ||
			slices.ContainsFunc(held, func(other Block) bool { return s.conflict(b, other) })
	})
}

// conflict reports whether the blocks share some nodes but not all.
func (s *Static) conflict(a, b Block) bool {
	if a.lentBy(b) || b.lentBy(a) {
		return false
	}
	one, other := a.Nodes.Intersect(s.backed), b.Nodes.Intersect(s.backed)
	return one != other && !one.Intersect(other).IsEmpty()
}

// lentBy reports whether the block belongs to an init container that runs on some nodes of the
// other block before that is used. It holds nothing itself.
func (b Block) lentBy(other Block) bool {
	return b.Size == 0 && b.Nodes != other.Nodes && b.Nodes.SubsetOf(other.Nodes)
}

// Lent returns the nodes of the block that lends this one.
func (b Block) Lent(all []Block) (by topology.NodeSet, ok bool) {
	if b.Size > 0 {
		return by, false
	}
	at := slices.IndexFunc(all, b.lentBy)
	if at < 0 {
		return by, false
	}
	return all[at].Nodes, true
}

func sumFree(usage []Usage, nodes topology.NodeSet, name v1.ResourceName) (free uint64) {
	for _, u := range usage {
		if nodes.Has(u.Node) {
			free += u.Free[name]
		}
	}
	return free
}

// narrowFirst sorts in a total order, so that free memory does not depend on the order of blocks.
func narrowFirst(blocks []Block) []Block {
	return slices.SortedFunc(slices.Values(blocks), func(a, b Block) int {
		return cmp.Or(cmp.Compare(a.Nodes.Len(), b.Nodes.Len()), a.Nodes.Compare(b.Nodes),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Size, b.Size))
	})
}

// Sum merges the blocks of a resource on the same nodes; the sums stay the same.
func Sum(blocks ...Block) (out []Block) {
	type key struct {
		nodes    topology.NodeSet
		resource v1.ResourceName
	}
	at := map[key]int{}
	for _, b := range blocks {
		k := key{b.Nodes, b.Resource}
		i, known := at[k]
		if !known {
			i, at[k] = len(out), len(out)
			out = append(out, Block{Nodes: b.Nodes, Resource: b.Resource})
		}
		out[i].Size += b.Size
	}
	return out
}

// Reuse returns the blocks of a pod's init containers after another container of the pod has chosen
// its own: in the same order, with sizes reduced by what the container reuses. From then on these
// and the chosen blocks are held. A block of size 0 still keeps its nodes in their group.
func Reuse(reusable, chosen []Block) []Block {
	left := slices.Clone(reusable)
	for _, b := range chosen {
		size := b.Size
		for i := range left {
			if left[i].Nodes != b.Nodes || left[i].Resource != b.Resource {
				continue
			}
			take := min(size, left[i].Size)
			left[i].Size -= take
			size -= take
		}
	}
	return left
}
