package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// memoryRequest appends the container's requests of assigned memory.
func (c Case) memoryRequest(r *Request, asked map[v1.ResourceName]uint64,
	got allocation.Container) {
	if c.Room.Memory == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		a := Amount{Resource: string(name), Count: int(asked[name])}
		for _, b := range got.Memory() {
			if b.Resource == name {
				a.Got = nodes(b.Nodes.String())
			}
		}
		r.Resources = append(r.Resources, a)
	}
}

// countMemory counts the assignable memory, and names the nodes that some containers use together.
func (s *Supply) countMemory(room *allocation.Room) {
	if room.Memory == nil {
		return
	}
	name := v1.ResourceName(s.Resource)
	var groups []topology.NodeSet
	var single []string
	for i, u := range room.Memory.Usage(room.Taken.Memory()) {
		if i >= len(s.Nodes) {
			break
		}
		s.Nodes[i].Free, s.Nodes[i].Total = int(u.Free[name]), int(u.Allocatable[name])
		s.Free += s.Nodes[i].Free
		s.Total += s.Nodes[i].Total
		if u.Group.Len() > 1 && !slices.Contains(groups, u.Group) {
			groups = append(groups, u.Group)
		}
		if u.Group.Len() == 1 && u.Blocks > 0 {
			single = append(single, u.Group.String())
		}
	}
	s.Single = strings.Join(single, ",")
	for _, g := range groups {
		s.Groups = append(s.Groups, g.String())
	}
}

// refusedMemory explains the memory manager's error.
func (r refusal) refusedMemory(err error) *Blocking {
	b := &Blocking{Resource: string(v1.ResourceMemory), Container: r.unplaced()}
	need := 0
	for _, request := range r.tried.Requests {
		if request.Container != b.Container {
			continue
		}
		for _, a := range request.Resources {
			short := need == 0 || r.tried.supply(a.Resource).Free < a.Count
			if isMemory(a.Resource) && short {
				b.Resource, need = a.Resource, a.Count
			}
		}
	}
	text := number(b.Resource, need) + " asked for, "
	switch s := r.tried.supply(b.Resource); {
	case s.Free < need:
		b.Why = text + free(b.Resource, s.Free)
	case errors.Is(err, memory.ErrNotPreferred), errors.Is(err, memory.ErrExtendedNotPreferred):
		b.Why = text +
			"which only more NUMA nodes together have free than an empty machine would need"
	default:
		b.Why = text + "and no NUMA nodes have that much free that may be used together" +
			s.grouped()
	}
	return b
}

func (a Attempt) supply(resource string) Supply {
	for _, s := range a.Free {
		if s.Resource == resource {
			return s
		}
	}
	return Supply{}
}

// grouped says why other pods' memory blocks the free memory.
func (s Supply) grouped() string {
	switch {
	case len(s.Groups) > 0:
		return fmt.Sprintf("; other pods use nodes %s as one, so that memory comes from all of "+
			"them together or not at all", strings.Join(s.Groups, " and nodes "))
	case s.Single != "":
		alone := strings.Split(s.Single, ",")
		if len(alone) == 1 {
			return "; other pods use node " + s.Single +
				" alone, so that it cannot be combined with others"
		}
		last := len(alone) - 1
		return fmt.Sprintf("; other pods use each of nodes %s and %s alone, so that these "+
			"cannot be combined with others", strings.Join(alone[:last], ", "), alone[last])
	}
	return ""
}
