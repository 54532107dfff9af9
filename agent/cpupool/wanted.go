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

// wanted holds what containers should have.
type wanted struct {
	online cpuset.CPUSet
	backed topology.NodeSet // nodes with memory
	state  allocation.State
	shared cpuset.CPUSet
	pinned bool // a CPU policy assigns exclusive CPUs
	// of returns the set of a container, given the set that the runtime was told, and the set's text.
	// An empty set changes nothing.
	of func(c live, told string) (cpuset.CPUSet, string)
	// limit returns the CPU quota of an exclusive container, given how many CPUs it asked for, and
	// whether it holds more; zero changes nothing.
	limit func(asked int, more bool) cgroups.CPULimit
	// asked is Config.Asked.
	asked func(uid types.UID, container string) (cpus int, known bool)
}

// shared returns the CPUs of containers without exclusive CPUs.
func shared(h machine.Hardware, state allocation.State) cpuset.CPUSet {
	if h.CPUs != nil {
		return h.CPUs.Shared(state.CPUs())
	}
	return h.Machine.Online()
}

// newWanted derives it from the assignments and the hardware.
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

// pin sets what the static policy wants: a container has its exclusive CPUs or the shared pool.
// Exclusive CPUs need no quota, unless the container holds more CPUs than it asked for, to complete
// its cores: then the quota limits it to what it asked for.
func (w *wanted) pin(static *cpumanager.Static, limit func(cpus int) cgroups.CPULimit) {
	online, shared, sharedText := static.Online(), w.shared, w.shared.String()
	w.online = online
	w.of = func(c live, _ string) (cpuset.CPUSet, string) {
		if own := w.held(c).CPUs(); !own.IsEmpty() {
			usable := own.Intersection(online) // cgroup v1 refuses offline CPUs
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

// open sets what the policy none wants: containers that got a set under another policy get all
// CPUs, and exclusive containers get a quota instead.
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

// quota returns the CPU quota of a container; zero: it stays as it was created.
func (w *wanted) quota(c live) cgroups.CPULimit {
	own := w.held(c).CPUs().Size()
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

// mems returns the memory nodes of a container that was created with some: the nodes of its
// assigned memory under whatever policy, else those that the runtime was told, without nodes that
// have no memory now. None changes nothing. A later assignment does not move the memory of a
// container.
func (w *wanted) mems(c live) topology.NodeSet {
	if c.Applied.Mems == "" {
		return topology.NodeSet{}
	}
	var nodes topology.NodeSet
	for _, block := range w.held(c).Memory() {
		nodes = nodes.Union(block.Nodes)
	}
	if nodes.IsEmpty() {
		var err error
		if nodes, err = topology.ParseNodeSet(c.Applied.Mems); err != nil {
			return topology.NodeSet{} // not in the kernel's format
		}
	}
	return nodes.Intersect(w.backed)
}
