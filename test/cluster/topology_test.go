package cluster_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestNodeResourceTopology: once the cluster has the resource and gives nodes the right to it, a
// node publishes what is free on each of its NUMA nodes, only for itself; the object is deleted
// with the Node.
func TestNodeResourceTopology(t *testing.T) {
	c := rig.Start(t)
	applyFile(t, c, "testdata/noderesourcetopology.yaml")
	n := c.Join(harness.New(t), "zoned")
	n.Plugin("example.com/gpu", "--devices=4", "--nodes=0,1")
	n.Start()
	c.AwaitReady(n.Name)
	harness.Eventually(t, "the node says that it may not", func() error {
		if log := n.LogTail(1e6); !strings.Contains(log, "NodeResourceTopology is not written") {
			return errors.New("its log says nothing of it")
		}
		return nil
	})
	applyFile(t, c, "../../examples/schedulers/rights.yaml")
	eventually(t, c, "best-effort container",
		"get", "node-res-topo", n.Name, "-o", "jsonpath={.attributes[?(@.name==\""+
			"topologyManagerPolicy\")].value} {.attributes[?(@.name==\"topologyManagerScope\")].value}")
	free := func(resource, want string) {
		t.Helper()
		eventually(t, c, want, "get", "node-res-topo", n.Name, "-o",
			"jsonpath={.zones[*].resources[?(@.name==\""+resource+"\")].available}")
	}
	free("example.com/gpu", "2 2")
	c.Apply(bound(n.Name, "takes", `, resources: {limits: {cpu: 4, memory: 64Mi,
 example.com/gpu: 2}}`))
	await(t, c, c.Namespace, "takes", runs)
	free("example.com/gpu", "0 2")
	free("cpu", "11 16 16 16") // one CPU is reserved for the system
	c.MustRun("delete", "pod", "takes", "--timeout=1m")
	free("example.com/gpu", "2 2")

	others := strings.Replace(c.MustRun("get", "node-res-topo", n.Name, "-o", "json"),
		`"name": "zoned"`, `"name": "other"`, 1)
	if _, err := c.RunWith(others, "--kubeconfig="+n.Kubeconfig, "create", "-f", "-"); err == nil ||
		!strings.Contains(err.Error(), "a node may write its own NodeResourceTopology only") {
		t.Errorf("a node that writes another's: %v", err)
	}
	n.Kill()
	c.MustRun("delete", "node", n.Name)
	eventually(t, c, "", "get", "node-res-topo", "-o", "name")
}

// applyFile creates a file's objects, until the test ends.
func applyFile(t *testing.T, c rig.Cluster, file string) {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	c.MustRun("apply", "-f", path)
	t.Cleanup(func() { c.MustRun("delete", "-f", path) })
}
