package test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestPlacementAsked: pods of one node choose policies, scopes and strategies for themselves, as
// far as the node allows it.
func TestPlacementAsked(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "restricted"
	n.Args = append(n.Args, "--pod-topology-policies=none,single-numa-node",
		"--numa-allocation=spread")
	n.Start()
	n.Plugin("example.com/nic", "--devices=4", "--nodes=0-3")
	pod := func(name, limits, annotations string) {
		n.Pod(name, strings.Replace(limited(name, limits), "\nspec:",
			"\n  annotations: {"+annotations+"}\nspec:", 1))
	}

	// Two devices are on two nodes, so a pod that requires a single node finds no place.
	const two = "cpu: 2, memory: 1Gi, example.com/nic: 2"
	pod("strict", two, "numalet.io/topology-policy: single-numa-node")
	n.AwaitPhase("strict-node", v1.PodFailed)
	pod("anywhere", two, "numalet.io/topology-policy: none")
	n.AwaitPhase("anywhere-node", v1.PodRunning)
	pod("forbidden", two, "numalet.io/topology-policy: best-effort")
	n.AwaitPhase("forbidden-node", v1.PodFailed)
	pod("unknown", two, "numalet.io/numa-allocation: wide")
	n.AwaitPhase("unknown-node", v1.PodFailed)

	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"strict-node": {"TopologyAffinityError", "Resources cannot be allocated with Topology"},
		"forbidden-node": {"PlacementForbidden", `"best-effort" may not be chosen on this node, ` +
			`whose policy is "restricted"; a pod may choose one of ["none" "single-numa-node"]`},
		"unknown-node": {"PlacementForbidden", `annotation numalet.io/numa-allocation: unknown NUMA ` +
			`allocation strategy "wide": use one of lowest, packed, spread`},
	} {
		s := pods[name].Status
		if s.Reason != want[0] || !strings.Contains(s.Message, want[1]) {
			t.Errorf("%s: %s, %s; want %q", name, s.Reason, s.Message, want)
		}
	}

	// CPUs are spread over nodes by default, and packed if the pod asks for it.
	at := func(name string) string {
		rows, err := n.Placements()
		if err != nil {
			t.Fatal(err)
		}
		return rows[name+"-node/main"].NUMANodes
	}
	for i := range 2 {
		pod(fmt.Sprint("apart", i), "cpu: 2, memory: 1Gi", "")
		n.AwaitPhase(fmt.Sprintf("apart%d-node", i), v1.PodRunning)
	}
	if at("apart0") == at("apart1") {
		t.Errorf("both pods are on node %s", at("apart0"))
	}
	for i := range 2 {
		pod(fmt.Sprint("close", i), "cpu: 2, memory: 1Gi", "numalet.io/numa-allocation: packed")
		n.AwaitPhase(fmt.Sprintf("close%d-node", i), v1.PodRunning)
	}
	if at("close0") != at("close1") {
		t.Errorf("the pods are on nodes %s and %s", at("close0"), at("close1"))
	}
	text, err := explainPod(t, n, "close1-node")
	const want = "(topologyManagerPolicy: restricted, topologyManagerScope: container, NUMA " +
		"allocation: packed; the pod chose by numalet.io/numa-allocation)"
	if err != nil || !strings.Contains(text, want) {
		t.Errorf("%v; there is no %q in\n%s", err, want, text)
	}
}

// TestScopeAsked: two containers each find a NUMA node, but no node has room for both.
func TestScopeAsked(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--pod-topology-policies=single-numa-node")
	n.Start()
	n.Plugin("example.com/nic", "--devices=4", "--nodes=0-3")
	for scope, want := range map[string]v1.PodPhase{
		"container": v1.PodRunning, "pod": v1.PodFailed,
	} {
		const one = "image: sim.local/app, resources: {limits: {cpu: 1, memory: 1Gi, " +
			"example.com/nic: 1}}"
		text := manifestOf(scope, "containers: [{name: a, "+one+"}, {name: b, "+one+"}]")
		n.Pod(scope, strings.Replace(text, "\nspec:", "\n  annotations: {"+
			"numalet.io/topology-policy: single-numa-node, numalet.io/topology-scope: "+scope+
			"}\nspec:", 1))
		n.AwaitPhase(scope+"-node", want)
	}
	rows, err := n.Placements()
	if err != nil {
		t.Fatal(err)
	}
	one, two := rows["container-node/a"].NUMANodes, rows["container-node/b"].NUMANodes
	if one == "" || one == two {
		t.Errorf("the containers are on nodes %q and %q", one, two)
	}
	const devices = "numalet_device_allocation_per_numa{numa_nodes=%q,resource=\"example.com/nic\"} 1"
	awaitMetrics(n, "devices are counted where they are", fmt.Sprintf(devices, one),
		fmt.Sprintf(devices, two))
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	if s := pods["pod-node"].Status; s.Reason != "TopologyAffinityError" {
		t.Errorf("in scope pod: %s, %s", s.Reason, s.Message)
	}
	text, err := explainPod(t, n, "pod-node")
	const said = "topologyManagerScope: pod"
	if err != nil || !strings.Contains(text, said) {
		t.Errorf("explain does not say %q: %s, %v", said, text, err)
	}
}
