package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestBootstrapToken: a node with only a token gets its certificate, registers with it, and does so
// again after a restart without the token.
func TestBootstrapToken(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "bootstrapped")
	certificates := filepath.Join(agent.Dir, "pki")
	if err := os.Remove(n.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	token := "--bootstrap-kubeconfig=" + n.Bootstrap
	agent.Settings["rotateCertificates"] = true
	agent.Settings["tlsCipherSuites"] = []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}
	agent.Args = append(agent.Args, "--cert-dir="+certificates, token)
	n.Start()
	c.AwaitReady(n.Name)
	c.Apply(bound(n.Name, "web", ""))
	await(t, c, c.Namespace, "web", runs)
	testBenchmark(t, n, certificates)
	n.Kill()
	agent.Args = slices.DeleteFunc(agent.Args, func(a string) bool { return a == token })
	agent.Args = append(agent.Args, "--node-labels=example.com/late=x")
	n.Start()
	c.MustRun("cordon", n.Name)
	eventually(t, c, "NodeNotSchedulable", "get", "events", "--namespace=default",
		"--field-selector=involvedObject.name="+n.Name+",reason=NodeNotSchedulable",
		"--output=jsonpath={.items[*].reason}")
}

// TestNodeObject: the Node that numalet registers, compared with a stock kubelet's.
func TestNodeObject(t *testing.T) {
	c := rig.Start(t)
	shown := map[string]string{}
	for _, name := range []string{"numalet", "kubelet"} {
		agent := harness.New(t)
		rig.ThisMachine(agent)
		if name == "kubelet" {
			rig.StockKubelet(t, agent)
		}
		n := c.Join(agent, "object-"+name)
		agent.Settings["registerWithTaints"] = []v1.Taint{
			{Key: "example.com/t", Value: "v", Effect: v1.TaintEffectPreferNoSchedule},
		}
		agent.Args = append(agent.Args, "--node-labels=example.com/a=b,node.kubernetes.io/c=d")
		n.Start()
		harness.Eventually(t, "the node is ready", func() error {
			node, err := c.Client.CoreV1().Nodes().Get(context.Background(), n.Name,
				metav1.GetOptions{})
			if err != nil {
				return err
			}
			shown[name] = strings.ReplaceAll(show(node), n.Name, "NODE")
			if !strings.Contains(shown[name], "Ready=True") {
				return fmt.Errorf("it has %s", shown[name])
			}
			return nil
		})
		eventually(t, c, n.Name, "get", "lease", "--namespace=kube-node-lease", n.Name,
			"--output=jsonpath={.metadata.ownerReferences[0].name}")
		n.Kill()
	}
	if shown["numalet"] != shown["kubelet"] {
		t.Errorf("numalet:\n%s\nkubelet:\n%s", shown["numalet"], shown["kubelet"])
	}
}

// show returns what two agents must agree on about a Node, as lines.
func show(n *v1.Node) string {
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	for k, v := range n.Labels {
		if !strings.HasPrefix(k, "numalet.io/") { // the kubelet has none of these
			add("label %s=%s", k, v)
		}
	}
	for k, v := range n.Annotations {
		if !strings.HasPrefix(k, "node.alpha.kubernetes.io/ttl") {
			add("annotation %s=%s", k, v)
		}
	}
	for _, taint := range n.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // the controller's
			add("taint %s", taint.ToString())
		}
	}
	for _, c := range n.Status.Conditions {
		add("condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	for k := range n.Status.Capacity {
		add("capacity %s", k)
	}
	for k := range n.Status.Allocatable {
		add("allocatable %s", k)
	}
	for _, a := range n.Status.Addresses {
		add("address %s %s", a.Type, a.Address)
	}
	info := n.Status.NodeInfo
	add("machine %s, system %s, boot %s, kernel %s, %s, %s %s, runtime %s", info.MachineID,
		info.SystemUUID, info.BootID, info.KernelVersion, info.OSImage, info.OperatingSystem,
		info.Architecture, info.ContainerRuntimeVersion)
	for _, q := range []v1.ResourceName{v1.ResourceEphemeralStorage, v1.ResourcePods} {
		amount := n.Status.Capacity[q]
		add("%s of capacity: %d", q, amount.Value())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
