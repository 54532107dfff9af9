// Package allocationtest has what tests of assignments share.
package allocationtest

import (
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// Same compares sets of CPUs and nodes by their elements.
var Same = cmp.Options{
	cmp.Comparer(cpuset.CPUSet.Equals),
	cmp.Comparer(func(a, b topology.NodeSet) bool { return a == b }),
}

// Pod returns a pod that holds some of each kind of resource.
func Pod(uid string) allocation.Pod {
	return allocation.Pod{
		UID: types.UID(uid), Namespace: "default", Name: "train-" + uid, BootID: "boot-1",
		Containers: map[string]allocation.Container{
			"main": {
				allocation.CPUs(cpuset.New(2, 3, 18, 19)),
				allocation.Devices{
					{Resource: "example.com/gpu", IDs: []string{"gpu-0", "gpu-1"},
						Answer: []byte{1, 0},
						Nodes:  []topology.NodeSet{topology.NewNodeSet(1), {}}},
					{Resource: "example.com/nic", IDs: []string{"nic-0"}, Answer: []byte{}},
				},
			},
			"init": {allocation.CPUs(cpuset.New(2, 3)), allocation.Memory{
				{Nodes: topology.NewNodeSet(0, 1), Resource: "hugepages-2Mi"},
				{Nodes: topology.NewNodeSet(0, 1), Resource: "memory", Size: 5 << 30},
			}},
		},
	}
}

// State returns a state that has these pods.
func State(pods ...allocation.Pod) allocation.State {
	out := allocation.State{Version: 1, Pods: map[types.UID]allocation.Pod{}}
	for _, p := range pods {
		out.Pods[p.UID] = p
	}
	return out
}
