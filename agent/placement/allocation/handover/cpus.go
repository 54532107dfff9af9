package handover

import (
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
)

var cpuFile = file{
	read: func(k *Kubelet, d dirs, now time.Time) (err error) {
		k.CPUs, err = load(d, filepath.Join(d.root, cpucheckpoint.FileName), now,
			cpucheckpoint.Decode)
		return err
	},
	give:   Kubelet.giveCPUs,
	export: exportCPUs,
}

// exportCPUs writes cpu_manager_state. Without a static policy there are no exclusive CPUs.
func exportCPUs(d dirs, state allocation.State, n Node) error {
	out := cpucheckpoint.State{Policy: "none"}
	if n.CPUs != nil {
		out = cpucheckpoint.State{
			Policy: "static", Default: n.CPUs.KubeletDefault(state.CPUs()),
			Entries: holdings(state, exclusive), PodEntries: pools(state, exclusive),
			Baselines: baselines(state),
		}
	}
	content, err := cpucheckpoint.Encode(out)
	return export(d.root, cpucheckpoint.FileName, content, err)
}

func exclusive(c allocation.Container) (cpuset.CPUSet, bool) {
	return c.CPUs(), !c.CPUs().IsEmpty()
}

// baselines returns the CPUs that each container started with; nil: that is what all have.
func baselines(state allocation.State) map[string]map[string]cpuset.CPUSet {
	resized := false
	out := holdings(state, func(c allocation.Container) (cpuset.CPUSet, bool) {
		resized = resized || len(c.AddedCPUs()) > 0
		return cpumanager.Layers(c.CPUs(), c.AddedCPUs())[0], !c.CPUs().IsEmpty()
	})
	if !resized {
		return nil // also what a kubelet takes from a file without baselines
	}
	return out
}

// giveCPUs adds the CPUs that the kubelet gave to the pod as a whole, and to containers: those that share
// what is left of the pod's have entries too.
func (k Kubelet) giveCPUs(n Node, observed cri.Pod, out map[string]allocation.Container) error {
	if n.CPUs == nil {
		return nil // policy none has no exclusive CPUs
	}
	uid := string(observed.UID)
	if pool := k.CPUs.PodEntries[uid]; !pool.IsEmpty() {
		if absent := pool.Difference(n.Online); !absent.IsEmpty() {
			return fmt.Errorf("the kubelet gave CPUs %s to the pod, %s are not online", pool, absent)
		}
		out[allocation.WholePod] = out[allocation.WholePod].With(allocation.CPUs(pool))
	}
	for name, cpus := range k.CPUs.Entries[uid] {
		if absent := cpus.Difference(n.Online); !absent.IsEmpty() {
			return fmt.Errorf("the kubelet gave CPUs %s to container %s, %s are not online", cpus,
				name, absent)
		}
		out[name] = out[name].With(allocation.CPUs(cpus))
		if started, is := k.CPUs.Baselines[uid][name]; is {
			out[name] = out[name].WithAdded(cpus.Difference(started))
		}
	}
	return nil
}
