package cpupool

import (
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
)

// Quota is a container's cpu.cfs_quota_us and cpu.cfs_period_us; 0 leaves it alone.
type Quota struct{ Quota, Period int64 }

// wanted is what containers should have.
type wanted struct {
	online cpuset.CPUSet
	// of is the set of a container, by what the runtime was told of it, and the set's text; the empty
	// set: it is left alone.
	of func(c live, told string) (cpuset.CPUSet, string)
	// quota is what goes with another set.
	quota func(c live) Quota
}

// Shared is where containers without CPUs of their own run now.
func (p *Pool) Shared() cpuset.CPUSet {
	if static := p.cfg.Static(); static != nil {
		return static.Shared(p.cfg.State().CPUs())
	}
	return p.cfg.Online()
}

// pinned is what is wanted under the static policy: one's own CPUs, for which no quota is needed, or
// the shared pool.
func pinned(state allocation.State, static *cpumanager.Static) wanted {
	online, shared := static.Online(), static.Shared(state.CPUs())
	sharedText := shared.String()
	own := func(c live) cpuset.CPUSet { return state.Pods[c.pod.UID].Containers[c.Name].CPUs }
	return wanted{
		online: online,
		of: func(c live, _ string) (cpuset.CPUSet, string) {
			if own := own(c); !own.IsEmpty() {
				usable := own.Intersection(online) // of the offline ones cgroup v1 refuses each
				return usable, usable.String()
			}
			return shared, sharedText
		},
		quota: func(c live) Quota {
			if own(c).IsEmpty() {
				return Quota{}
			}
			return Quota{Quota: cgroups.Unlimited}
		},
	}
}

// open is what is wanted under policy none: those who were given a set, under another policy, get all
// CPUs, and those who had CPUs of their own a quota instead.
func (p *Pool) open(state allocation.State) wanted {
	online := p.cfg.Online()
	text := online.String()
	return wanted{
		online: online,
		of: func(_ live, told string) (cpuset.CPUSet, string) {
			if told == "" {
				return cpuset.New(), ""
			}
			return online, text
		},
		quota: func(c live) Quota {
			own := state.Pods[c.pod.UID].Containers[c.Name].CPUs
			if own.IsEmpty() || p.cfg.Quota == nil {
				return Quota{}
			}
			return p.cfg.Quota(own.Size())
		},
	}
}
