package metrics

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// caches is a machine of two nodes, each with two caches of two cores.
func caches(t *testing.T) *topology.Machine {
	return topologytest.Machine(t, []topology.Node{{ID: 0}, {ID: 1}}, 8, func(c *topology.CPU) {
		c.Node, c.L3 = topology.NodeID(c.ID/4), topology.L3ID(c.ID/2*2)
	})
}

// tried returns a result for a plan with these containers, by name.
func tried(err error, containers map[string]allocation.Container) report.Result {
	r := report.Result{Pod: &v1.Pod{}, Outcome: decide.Admit, Tried: &report.Tried{
		Plan: allocation.Plan{Pod: allocation.Pod{Containers: containers}}, Err: err,
	}}
	if rejection := (*allocation.Rejection)(nil); errors.As(err, &rejection) {
		r.Outcome, r.Reason, r.Short = decide.Reject, rejection.Reason, rejection.Short
	}
	return r
}

func TestDecided(t *testing.T) {
	type containers = map[string]allocation.Container
	var (
		two      = containers{"own": {allocation.CPUs(cpuset.New(0, 1))}, "shared": {}}
		wide     = containers{"own": {allocation.CPUs(cpuset.New(0, 1, 2)), allocation.Memory{{}}}}
		topo     = &allocation.Rejection{Reason: allocation.ReasonTopology}
		counted  = &allocation.Rejection{Reason: "OutOfcpu", Short: v1.ResourceCPU}
		refused  = &allocation.Rejection{Reason: allocation.ReasonUnexpected, Err: errors.New("no")}
		isolated = &allocation.Rejection{
			Reason: cpumanager.ReasonIsolatedShortage, Err: &cpumanager.IsolatedShortageError{},
		}
		shortage = &allocation.Rejection{
			Reason: allocation.ReasonUnexpected, Err: &cpumanager.ShortageError{},
		}
	)
	const (
		requests   = "kubelet_topology_manager_admission_requests_total "
		failures   = "kubelet_topology_manager_admission_errors_total "
		pinning    = "kubelet_cpu_manager_pinning_requests_total "
		pinErr     = "kubelet_cpu_manager_pinning_errors_total "
		memPinning = "kubelet_memory_manager_pinning_requests_total "
		count      = "kubelet_container_aligned_compute_resources_count"
		failed     = "kubelet_container_aligned_compute_resources_failure_count"
	)
	single := Rules{Rules: topology.Rules{Policy: topology.SingleNUMANode}}
	pod := Rules{Rules: topology.Rules{Policy: topology.SingleNUMANode, Scope: topology.PodScope}}
	for name, tc := range map[string]struct {
		by     Rules
		result report.Result
		want   []string
	}{
		"no plan": {single, report.Result{Outcome: decide.Admit}, []string{requests + "0"}},
		"policy none": {Rules{Rules: topology.Rules{Policy: topology.None}}, tried(refused, nil), []string{
			requests + "1", failures + "0"}},
		"refused": {Rules{Rules: topology.Rules{Policy: topology.BestEffort}}, tried(refused, nil), []string{
			requests + "1", failures + "1", pinning + "0",
			count + `{boundary="numa_node",scope="container"} 0`,
			count + `{boundary="numa_node",scope="pod"} 0`,
			failed + `{boundary="numa_node",scope="container"} 0`,
			failed + `{boundary="numa_node",scope="pod"} 0`}},
		"lack of what is counted": {single, tried(counted, two), []string{
			failures + "0", pinning + "1",
			count + `{boundary="numa_node",scope="container"} 2`}},
		"lack of isolated CPUs": {single, tried(isolated, nil), []string{
			failures + "0", pinning + "1", pinErr + "1"}},
		"container scope": {single, tried(nil, two), []string{
			requests + "1", failures + "0", pinning + "1", pinErr + "0",
			count + `{boundary="numa_node",scope="container"} 2`,
			count + `{boundary="uncore_cache",scope="container"} 1`}},
		"the second container has no place": {single, tried(topo, two), []string{
			failures + "1",
			count + `{boundary="numa_node",scope="container"} 2`,
			failed + `{boundary="numa_node",scope="container"} 1`}},
		"pod scope": {pod, tried(nil, two), []string{
			count + `{boundary="numa_node",scope="pod"} 1`}},
		"no place in pod scope": {pod, tried(topo, nil), []string{
			failures + "1", failed + `{boundary="numa_node",scope="pod"} 1`}},
		"two caches": {Rules{Rules: topology.Rules{Policy: topology.Restricted}}, tried(nil, wide), []string{
			pinning + "1", memPinning + "1",
			count + `{boundary="uncore_cache",scope="container"} 0`}},
		"whole cores": {
			Rules{Rules: topology.Rules{Policy: topology.Restricted}, WholeCores: true},
			tried(nil, wide), []string{
				count + `{boundary="physical_cpu",scope="container"} 1`,
				failed + `{boundary="physical_cpu",scope="container"} 0`}},
		"no whole cores": {
			Rules{Rules: topology.Rules{Policy: topology.Restricted}, WholeCores: true},
			tried(shortage, nil),
			[]string{
				failures + "1", pinning + "1", pinErr + "1",
				count + `{boundary="physical_cpu",scope="container"} 0`,
				failed + `{boundary="physical_cpu",scope="container"} 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := metrics.NewKubeRegistry()
			if tc.by.Scope == "" {
				tc.by.Scope = topology.ContainerScope
			}
			tc.by.Machine = caches(t)
			m, err := New(Config{
				Registry: registry, Node: "n", StaticCPUs: true, Rules: func() Rules { return tc.by },
			})
			if err != nil {
				t.Fatal(err)
			}
			m.Decided(tc.result)
			answer := httptest.NewRecorder()
			metrics.HandlerFor(registry, metrics.HandlerOpts{}).ServeHTTP(answer,
				httptest.NewRequest(http.MethodGet, "/metrics", nil))
			got := answer.Body.String()
			for _, want := range tc.want {
				if !strings.Contains(got, want+"\n") {
					t.Errorf("there is no %s in\n%s", want, got)
				}
			}
			numa := strings.Contains(got, `numa_node",scope`)
			if numa != (tc.by.Policy != topology.None) {
				t.Errorf("alignment to nodes is told: %t, under %s", numa, tc.by.Policy)
			}
		})
	}
}

// TestPooled: with the gate it is counted who gets CPUs and memory from the node, and who from the pod.
func TestPooled(t *testing.T) {
	of := func(cpus ...int) allocation.Container {
		return allocation.Container{allocation.CPUs(cpuset.New(cpus...)),
			allocation.Memory{{Resource: "memory", Size: 1}}}
	}
	pod := podtest.New("p", podtest.Containers("a cpu=1 memory=1Gi", "b", "c"),
		podtest.Resources("cpu=3 memory=4Gi"))
	parts := map[string]allocation.Container{"a": of(0), "b": of(1, 2), "c": of(1, 2)}
	pooled := maps.Clone(parts)
	pooled[allocation.WholePod] = of(0, 1, 2)
	const (
		from  = "kubelet_resource_manager_allocations_total"
		whose = "kubelet_resource_manager_container_assignments_total"
		lacks = "kubelet_resource_manager_allocation_errors_total"
		pins  = "kubelet_cpu_manager_pinning_requests_total "
	)
	empty := &allocation.EmptyPodPoolError{Resource: "cpu"}
	for name, test := range map[string]struct {
		gate   bool
		result report.Result
		want   []string
	}{
		"a pool": {true, tried(nil, pooled), []string{
			from + `{resource_name="cpu",source="pod"} 3`, from + `{resource_name="memory",source="pod"} 3`,
			whose + `{assignment_type="pod_exclusive",resource_name="cpu"} 1`,
			whose + `{assignment_type="pod_shared",resource_name="memory"} 2`, pins + "1",
			"kubelet_memory_manager_pinning_requests_total 2"}},
		"none": {true, tried(nil, map[string]allocation.Container{"a": of(0)}), []string{
			from + `{resource_name="cpu",source="node"} 1`,
			whose + `{assignment_type="node_exclusive",resource_name="memory"} 1`, pins + "1"}},
		"nothing is left": {true, tried(&allocation.Rejection{Reason: empty.Reason(), Err: empty}, nil), []string{
			lacks + `{resource_name="cpu",source="pod"} 1`}},
		"without the gate": {false, tried(nil, map[string]allocation.Container{"a": of(0)}), []string{pins + "1"}},
	} {
		registry := metrics.NewKubeRegistry()
		by := Rules{Machine: caches(t), Rules: topology.Rules{
			Policy: topology.Restricted, Scope: topology.PodScope, PodLevel: test.gate}}
		m, err := New(Config{Registry: registry, Node: "n", StaticCPUs: true, Rules: func() Rules { return by }})
		if err != nil {
			t.Fatal(err)
		}
		test.result.Pod = pod
		m.Decided(test.result)
		answer := httptest.NewRecorder()
		metrics.HandlerFor(registry, metrics.HandlerOpts{}).ServeHTTP(answer,
			httptest.NewRequest(http.MethodGet, "/metrics", nil))
		got := answer.Body.String()
		for _, want := range test.want {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("%s: there is no %s in\n%s", name, want, got)
			}
		}
		if counts := strings.Contains(got, "resource_manager"); counts != test.gate {
			t.Errorf("%s: what the gate has counted is there: %t", name, counts)
		}
	}
}
