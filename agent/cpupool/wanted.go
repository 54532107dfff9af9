package cpupool

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// wanted is what containers should have.
type wanted struct {
	online cpuset.CPUSet
	backed topology.NodeSet // the nodes that have memory
	state  allocation.State
	shared cpuset.CPUSet
	pinned bool // there is a policy that gives out CPUs
	// of is the set of a container, by what the runtime was told of it, and the set's text; the
	// empty set: it is left alone.
	of func(c live, told string) (cpuset.CPUSet, string)
	// limit is the CPU quota of a container that has CPUs of its own, as many as it asked for or
	// more; zero: it is left alone.
	limit func(asked int, more bool) cgroups.CPULimit
	// asked is Config's.
	asked func(uid types.UID, container string) (cpus int, known bool)
}

// shared is where containers without CPUs of their own run.
func shared(h machine.Hardware, state allocation.State) cpuset.CPUSet {
	if h.CPUs != nil {
		return h.CPUs.Shared(state.CPUs())
	}
	return h.Machine.Online()
}

// newWanted is what follows from the assignments on the hardware.
func newWanted(cfg *Config, h machine.Hardware, state allocation.State) wanted {
	w := wanted{
		online: h.Machine.Online(), backed: h.Machine.MemoryNodes(), state: state,
		shared: shared(h, state), pinned: h.CPUs != nil, asked: cfg.Asked,
	}
	limit := cfg.Limit
	if limit == nil {
		limit = func(int) cgroups.CPULimit { return cgroups.CPULimit{} }
	}
	if w.pinned {
		w.pin(h.CPUs, limit)
	} else {
		w.open(limit)
	}
	return w
}

// pin: under the static policy one has one's own CPUs, for which no quota is needed, or the shared
// pool. Who has more than it asked for, so that its cores are whole, does no more than it asked for.
func (w *wanted) pin(static *cpumanager.Static, limit func(cpus int) cgroups.CPULimit) {
	online, shared, sharedText := static.Online(), w.shared, w.shared.String()
	w.online = online
	w.of = func(c live, _ string) (cpuset.CPUSet, string) {
		if own := w.held(c).CPUs; !own.IsEmpty() {
			usable := own.Intersection(online) // of the offline ones cgroup v1 refuses each
			return usable, usable.String()
		}
		return shared, sharedText
	}
	w.limit = func(asked int, more bool) cgroups.CPULimit {
		if more {
			return limit(asked)
		}
		return cgroups.CPULimit{Quota: cgroups.Unlimited}
	}
}

// open: under policy none those who were given a set, under another policy, get all CPUs, and those
// who had CPUs of their own a quota instead.
func (w *wanted) open(limit func(cpus int) cgroups.CPULimit) {
	online, text := w.online, w.online.String()
	w.of = func(_ live, told string) (cpuset.CPUSet, string) {
		if told == "" {
			return cpuset.New(), ""
		}
		return online, text
	}
	w.limit = func(asked int, _ bool) cgroups.CPULimit { return limit(asked) }
}

func (w *wanted) held(c live) allocation.Container {
	return w.state.Pods[c.pod.UID].Containers[c.Name]
}

// quota is the CPU quota of a container; zero: it is left alone, since it is that of its creation.
func (w *wanted) quota(c live) cgroups.CPULimit {
	own := w.held(c).CPUs.Size()
	if own == 0 {
		return cgroups.CPULimit{}
	}
	switch asked, known := w.asked(c.pod.UID, c.Name); {
	case !known:
		return cgroups.CPULimit{}
	case asked > 0 && asked < own:
		return w.limit(asked, true)
	}
	return w.limit(own, false)
}

// mems are the memory nodes of a container that was created with some: those that it holds memory
// of, under whatever policy, or that the runtime was told, as far as they have memory now. None: it
// is left alone. That it was assigned memory later is no reason to move what it has.
func (w *wanted) mems(c live) topology.NodeSet {
	if c.Applied.Mems == "" {
		return topology.NodeSet{}
	}
	var nodes topology.NodeSet
	for _, block := range w.held(c).Memory {
		nodes = nodes.Union(block.Nodes)
	}
	if nodes.IsEmpty() {
		var err error
		if nodes, err = topology.ParseNodeSet(c.Applied.Mems); err != nil {
			return topology.NodeSet{} // not in words that the kernel would take
		}
	}
	return nodes.Intersect(w.backed)
}
