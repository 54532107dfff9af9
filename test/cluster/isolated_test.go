package cluster_test

import (
	"reflect"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestIsolatedCPUsLabel: the Node has the label while CPUs are isolated, and pods find the node by
// it.
func TestIsolatedCPUsLabel(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "isolating")
	const flag = "--isolated-cpus=2-3,34"
	agent.Args = append(agent.Args, flag)
	label := func(want string) {
		t.Helper()
		eventually(t, c, want, "get", "node", n.Name,
			`--output=jsonpath={.metadata.labels.numalet\.io/isolated-cpus}`)
	}
	n.Start()
	c.AwaitReady(n.Name)
	label("3")
	eventually(t, c, "best-effort container true", "get", "node", n.Name, // the labels of what pods may choose
		`--output=jsonpath={.metadata.labels.numalet\.io/topology-policy} `+
			`{.metadata.labels.numalet\.io/topology-scope} `+
			`{.metadata.labels.numalet\.io/topology-policy\.restricted}`)
	c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: packets, annotations: {
  numalet.io/isolated-cpus: "true"}}, spec: {nodeSelector: {numalet.io/isolated-cpus: "3"},
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: "registry.test/work:1", resources: {
  limits: {cpu: 2, memory: 64Mi}}}]}}`)
	await(t, c, c.Namespace, "packets", runs)
	c.MustRun("delete", "pod", "packets", "--timeout=1m")
	n.Kill()
	agent.Args = slices.DeleteFunc(agent.Args, func(a string) bool { return a == flag })
	n.Start()
	label("")
}

// TestKubeletAfterIsolatedCPUs: a stock kubelet starts on numalet's files with isolated CPUs,
// assigned or not, and their pod keeps running.
func TestKubeletAfterIsolatedCPUs(t *testing.T) {
	n, d, _ := containerdrig.Node(t)
	rig.StockKubelet(t, n)
	s := switched{t, n, runtimeapi.NewRuntimeServiceClient(dial(t, d.Endpoint())), n.Program}
	plain := s.Args
	begin := func(agent string) {
		t.Helper()
		s.Args = plain
		if agent == "numalet" {
			s.Args = append(slices.Clone(plain), "--isolated-cpus=1")
		}
		s.begin(agent)
	}
	stop := func() {
		t.Helper()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	begin("numalet")
	s.visit("visitor0")
	stop()
	begin("kubelet")
	s.visit("visitor1")
	stop()

	begin("numalet")
	s.Pod("packets", podManifest(
		`name: packets, uid: 3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c17, `+
			`annotations: {numalet.io/isolated-cpus: "true"}`,
		`{limits: {cpu: "1", memory: 64Mi}}`))
	before := s.await([]string{"packets"})
	if own := before["packets"]; len(own.Own) != 1 || own.Own[0] != 1 || own.Allowed != "1" {
		t.Errorf("the isolated CPU is 1, and the pod has %+v", own)
	}
	stop()
	for _, agent := range []string{"kubelet", "numalet"} {
		begin(agent)
		s.await([]string{"packets"})
		s.visit("beside-" + agent)
		now, err := s.facts([]string{"packets"})
		if err != nil || !reflect.DeepEqual(now, before) {
			t.Errorf("%s: %v\nbefore: %+v\nnow:    %+v", agent, err, before, now)
		}
		stop()
	}
}
