package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// Candidate is a pod that may be evicted.
type Candidate struct {
	Pod *v1.Pod
	// Stats says what the pod uses; nil: it is not known, and the pod goes before all others.
	Stats *statsapi.PodStats
	// Exclusive: it has devices or CPUs of its own.
	Exclusive bool
	Beyond
}

// Beyond adds to a pod's statistics what it holds, or may have written, on the node's disks besides.
type Beyond struct {
	// Node and Layers are the sizes of deleted files that its processes hold open, on the node's
	// filesystem and on that of writable layers.
	Node, Layers Held
	// Grown is how many bytes its processes may have written since its volumes were measured.
	Grown int64
	// Partial: not all that it has could be measured.
	Partial bool
}

// Held is an amount of a filesystem.
type Held struct{ Bytes, Inodes int64 }

// on returns what counts for the signal: bytes, or inodes.
func (b Beyond) on(s Signal, l layout) int64 {
	all := b.Layers
	switch {
	case (s == ImageFSAvailable || s == ImageFSInodesFree) && l.images != l.containers:
		return 0
	case s == NodeFSAvailable || s == NodeFSInodesFree:
		if l.containers {
			all = Held{}
		}
		all = Held{all.Bytes + b.Node.Bytes + b.Grown, all.Inodes + b.Node.Inodes}
	}
	if s.Resource() == resourceInodes {
		return all.Inodes
	}
	return all.Bytes
}

// layout says which filesystems are one.
type layout struct {
	// images: images are not on the node's filesystem. containers: writable layers are not.
	images, containers bool
}

// layoutOf tells apart the filesystems of a summary by their numbers: if two are the same filesystem, size
// and inodes are equal.
func layoutOf(s statsapi.Summary) layout {
	r := s.Node.Runtime
	if r == nil {
		return layout{}
	}
	return layout{images: apart(s.Node.Fs, r.ImageFs), containers: apart(s.Node.Fs, r.ContainerFs)}
}

// ImagesApart reports whether images are on a filesystem of their own.
func ImagesApart(s statsapi.Summary) bool { return layoutOf(s).images }

func apart(a, b *statsapi.FsStats) bool {
	if a == nil || b == nil || a.CapacityBytes == nil || b.CapacityBytes == nil {
		return false
	}
	return *a.CapacityBytes != *b.CapacityBytes || a.Inodes != nil && b.Inodes != nil && *a.Inodes != *b.Inodes
}

// use is how much a pod uses of the resource that is short.
type use struct {
	used, requested int64
	// known: it does not use more.
	known bool
}

// useOf returns how much the pod uses of the signal's resource.
func useOf(c *Candidate, s Signal, l layout) use {
	if c.Stats == nil {
		return use{}
	}
	requests := podspec.Requests(c.Pod)
	switch s.Resource() {
	case v1.ResourceMemory:
		var used uint64 // a pod that has just begun may have none yet
		if c.Stats.Memory != nil {
			used = ptr.Deref(c.Stats.Memory.WorkingSetBytes, 0)
		}
		return use{int64(used), requests.Memory().Value(), true}
	case resourcePIDs:
		var count uint64
		if c.Stats.ProcessStats != nil {
			count = ptr.Deref(c.Stats.ProcessStats.ProcessCount, 0)
		}
		return use{int64(count), 0, true}
	case resourceInodes:
		return use{disk(c.Stats, s, l, inodes) + c.on(s, l), 0, !c.Partial}
	default:
		used := disk(c.Stats, s, l, bytes) + c.on(s, l)
		return use{used, requests.StorageEphemeral().Value(), !c.Partial}
	}
}

func bytes(fs *statsapi.FsStats) *uint64 { return fs.UsedBytes }

func inodes(fs *statsapi.FsStats) *uint64 { return fs.InodesUsed }

// disk sums what the pod has on the signal's filesystem: its writable layers, and on the node's own
// filesystem its logs and volumes too.
func disk(p *statsapi.PodStats, s Signal, l layout, of func(*statsapi.FsStats) *uint64) int64 {
	var layers int64
	for _, c := range p.Containers {
		layers += sum(of, c.Rootfs)
	}
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		all := sum(of, p.EphemeralStorage)
		if l.containers {
			all -= layers
		}
		return max(all, 0)
	case ImageFSAvailable, ImageFSInodesFree:
		if l.images != l.containers {
			return 0
		}
	}
	return layers
}

// rank orders the pods: who goes first comes first. Critical pods are left out. As the kubelet does it
// prefers pods of which nothing, or not all, is known, then pods that use more than they request (not for
// PIDs), then lower priorities, then more use: of memory, beyond the request. Of equal pods those without
// devices and exclusive CPUs go first, then the younger ones.
//
// But none goes in vain: if a pod that has to go in this order anyway brings back what is needed, those
// before it stay.
func rank(all []Candidate, s Signal, l layout, need int64) []Candidate {
	type ranked struct {
		Candidate
		use
	}
	pods := make([]ranked, 0, len(all))
	for _, c := range all {
		if !podspec.IsCritical(c.Pod) {
			pods = append(pods, ranked{c, useOf(&c, s, l)})
		}
	}
	memory, pids := s.Resource() == v1.ResourceMemory, s.Resource() == resourcePIDs
	slices.SortStableFunc(pods, func(a, b ranked) int {
		over := func(r ranked) bool { return !pids && r.used > r.requested }
		most := func(r ranked) int64 {
			if memory {
				return r.used - r.requested
			}
			return r.used
		}
		return cmp.Or(
			first(!a.known, !b.known),
			first(over(a), over(b)),
			cmp.Compare(ptr.Deref(a.Pod.Spec.Priority, 0), ptr.Deref(b.Pod.Spec.Priority, 0)),
			cmp.Compare(most(b), most(a)),
			first(!a.Exclusive, !b.Exclusive),
			b.Pod.CreationTimestamp.Time.Compare(a.Pod.CreationTimestamp.Time),
		)
	})
	used, out := make([]int64, len(pods)), make([]Candidate, len(pods))
	for i, p := range pods {
		used[i], out[i] = p.used, p.Candidate
	}
	if at := inVain(used, need); at > 0 {
		victim := out[at]
		copy(out[1:], out[:at])
		out[0] = victim
	}
	return out
}

// inVain returns how many of the first pods would go in vain: later pods have to go in any case, and give
// enough without them. used is what the pods give, in the order in which they go.
func inVain(used []int64, need int64) (at int) {
	end, sum := 0, int64(0)
	for ; end < len(used) && sum < need; end++ {
		sum += used[end]
	}
	if sum < need {
		return 0
	}
	for ; at+1 < end && sum-used[at] >= need; at++ {
		sum -= used[at]
	}
	return at
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// byUID finds what pods use.
func byUID(s statsapi.Summary) map[types.UID]*statsapi.PodStats {
	out := make(map[types.UID]*statsapi.PodStats, len(s.Pods))
	for i := range s.Pods {
		out[types.UID(s.Pods[i].PodRef.UID)] = &s.Pods[i]
	}
	return out
}
