package decide

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestPoolIsNotResized: of a pod with a pool, what the pool is of stays as it is.
func TestPoolIsNotResized(t *testing.T) {
	of := func(resources string, containers ...string) *v1.Pod {
		return podtest.New("p", podtest.Containers(containers...), podtest.Resources(resources))
	}
	has := of("cpu=4 memory=2Gi", "a cpu=2 memory=1Gi", "b")
	own := allocation.Pod{Containers: map[string]allocation.Container{
		allocation.WholePod: {allocation.CPUs(cpuset.New(1, 2, 3, 4))}}}
	for name, test := range map[string]struct {
		own   allocation.Pod
		wants *v1.Pod
		rule  string
	}{
		"the pod":        {own, of("cpu=5 memory=2Gi", "a cpu=2 memory=1Gi", "b"), rulePool},
		"a container":    {own, of("cpu=4 memory=2Gi", "a cpu=3 memory=1Gi", "b"), rulePool},
		"who shares":     {own, of("cpu=4 memory=2Gi", "a cpu=2 memory=1Gi", "b cpu=..1"), rulePool},
		"only memory":    {own, of("cpu=4 memory=3Gi", "a cpu=2 memory=1Gi", "b"), ""},
		"nothing":        {own, has, ""},
		"without a pool": {allocation.Pod{}, of("cpu=5 memory=2Gi", "a cpu=2 memory=1Gi", "b"), ""},
	} {
		r := &Request{Demand: DemandOf(has, nil, topology.Rules{}), Own: test.own}
		wants, rule := DemandOf(test.wants, nil, topology.Rules{}), ""
		if no := ofPool(r, &wants); no != nil {
			rule = no.Rule
		}
		if rule != test.rule {
			t.Errorf("%s: rule %q, want %q", name, rule, test.rule)
		}
	}
}

// TestPooledIsSound: whole cores are a matter of the pool, whose parts may be of single CPUs.
func TestPooledIsSound(t *testing.T) {
	m := topologytest.Machine(t, []topology.Node{{ID: 0}}, 8, func(c *topology.CPU) { c.Core %= 4 })
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{FullPCPUsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	v := View{Hardware: machine.Hardware{Machine: m, CPUs: static}}
	has := func(whole ...int) allocation.Pod {
		return allocation.Pod{Containers: map[string]allocation.Container{
			allocation.WholePod: {allocation.CPUs(cpuset.New(whole...))}, "a": {allocation.CPUs(cpuset.New(1))}}}
	}
	pod := podtest.New("p")
	if !v.Sound(pod, has(1, 5)) || v.Sound(pod, has(1, 2)) {
		t.Error("cores 1 and 5 are whole, 1 and 2 are not")
	}
}
