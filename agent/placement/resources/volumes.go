package resources

import (
	"fmt"
	"maps"
	"slices"

	"github.com/numalet/numalet/topology/podspec"
)

// sizes lists the emptyDirs in memory whose size in the spec is another one than was given, or all if that is
// not known for sure.
func (c live) sizes(n *Node) (out []gap) {
	if !n.resizesVolumes {
		return nil // they have the size that they were mounted with
	}
	want, has := podspec.ResourcesOf(c.spec).Volumes, podspec.ResourcesOf(c.record.given).Volumes
	for _, name := range slices.Sorted(maps.Keys(want)) {
		before, known := has[name]
		if now := want[name]; c.record.found != nil || known && before.Cmp(now) != 0 {
			g := gap{what: VolumeSize, volume: name, name: fmt.Sprintf("size of volume %s", name), want: now.String(),
				has: before.String(), phase: phaseOf(before.Value(), now.Value())}
			if g.phase == anyTime {
				g.phase = last
			}
			out = append(out, g)
		}
	}
	return out
}

// ofPod divides what a pod lacks by place: volumes shrink while its memory, which they use, is as it was, and grow
// when there is more of it.
func (l lack) ofPod() [3]lack {
	shrink, group, grow := l, l, l
	shrink.gaps, group.gaps, grow.gaps = nil, nil, nil
	for _, g := range l.gaps {
		switch {
		case g.what != VolumeSize:
			group.gaps = append(group.gaps, g)
		case g.phase == last:
			grow.gaps = append(grow.gaps, g)
		default:
			shrink.gaps = append(shrink.gaps, g)
		}
	}
	shrink.whole = len(group.gaps)+len(grow.gaps) == 0
	group.whole, grow.whole = len(grow.gaps) == 0, true
	return [3]lack{shrink, group, grow}
}

// volumes gives the pod's volumes their sizes.
func (u *update) volumes(l lack) error {
	sizes := podspec.ResourcesOf(l.spec).Volumes
	for _, g := range l.gaps {
		size := sizes[g.volume]
		if err := u.cfg.ResizeVolume(l.pod.UID, g.volume, size.Value()); err != nil {
			return err
		}
	}
	return nil
}
