package resources

import (
	"cmp"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// A container lacks nothing of what it was just created with, under whatever policy.
func TestCreatedLacksNothing(t *testing.T) {
	m := eightCPUsOn(t, []topology.Node{{ID: 0, MemoryBytes: 1 << 34}, {ID: 1, MemoryBytes: 1 << 34}}, 3)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mems, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	one := allocation.Memory{{Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 1 << 30}}
	for name, c := range map[string]struct {
		text string
		held allocation.Container
		pod  []podtest.Option
	}{
		"nothing asked": {text: "c"},
		"a fraction":    {text: "c cpu=500m memory=1Gi"},
		"exclusive": {text: "c cpu=2 memory=1Gi",
			held: allocation.Container{allocation.CPUs(cpuset.New(1, 2)), one}},
		"one CPU is offline": {text: "c cpu=2 memory=1Gi",
			held: allocation.Container{allocation.CPUs(cpuset.New(3, 4))}},
		"padded": {text: "c cpu=1 memory=1Gi",
			held: allocation.Container{allocation.CPUs(cpuset.New(1, 2))},
			pod:  []podtest.Option{podtest.Annotations(podspec.AnnotationWholeCores, "true")}},
	} {
		for _, h := range []machine.Hardware{
			{Machine: m}, {Machine: m, CPUs: static}, {Machine: m, CPUs: static, Memory: mems},
		} {
			for _, noQuota := range []bool{false, true} {
				pod := podtest.New("u", append(c.pod, podtest.Containers(c.text))...)
				n := newNode(Settings{ResourceOptions: cri.ResourceOptions{NoQuota: noQuota}}, h,
					allocation.State{Pods: map[types.UID]allocation.Pod{
						"u": {Containers: map[string]allocation.Container{"c": c.held}}}})
				r := n.container(pod, &pod.Spec.Containers[0], n.place("u", "c", pod, nil))
				has := cri.Pod{UID: "u", Containers: []cri.Container{{ID: "id", Name: "c",
					State:   cri.ContainerRunning,
					Applied: cri.Applied{CPUs: r.CpusetCpus, Mems: r.CpusetMems}}}}
				reads := reader{&n, nil, nil, func(types.UID) (*v1.Pod, bool) { return pod, true }, nothingRan}
				all, _ := reads.all(t.Context(), []cri.Pod{has}, records{})
				all[0].kernel.quota = &cgroups.CPULimit{
					Quota: cmp.Or(r.CpuQuota, cgroups.Unlimited), Period: r.CpuPeriod}
				if all[0].quota == (cgroups.CPULimit{}) {
					all[0].kernel.quota = nil // it is not read
				}
				if lacks := compare(all, &n, time.Now()).lacks; len(lacks) > 0 {
					t.Errorf("%s, static CPUs: %t, static memory: %t, quota: %t: lacks %s", name,
						h.CPUs != nil, h.Memory != nil, !noQuota, lacks[0])
				}
			}
		}
	}
}
