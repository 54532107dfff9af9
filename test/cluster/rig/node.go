package rig

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/numalet/numalet/cmd/numalet-lab/controlplane"
	"github.com/numalet/numalet/test/harness"
)

// Node is an agent that will be a node of the cluster.
type Node struct {
	*harness.Node
	// Name is the node's name, which no other node has at the same time.
	Name string
	// Kubeconfig and Bootstrap are files for the node: with its certificate, and with a token to
	// request one.
	Kubeconfig, Bootstrap string

	cluster Cluster
}

// Join prepares an agent to be a node of the cluster: the kubeconfig of a node of that name, and a
// certificate for its server. The test's end removes the node from the cluster.
func (c Cluster) Join(agent *harness.Node, name string) Node {
	c.t.Helper()
	n := Node{agent, name, filepath.Join(agent.Dir, "kubeconfig"),
		filepath.Join(agent.Dir, "bootstrap"), c}
	certificate, key := filepath.Join(agent.Dir, "tls.crt"), filepath.Join(agent.Dir, "tls.key")
	for _, err := range []error{
		c.Kubeconfig(n.Kubeconfig, "system:node:"+name, "system:nodes"),
		c.BootstrapKubeconfig(n.Bootstrap),
		c.NodeCertificate(certificate, key, name),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	agent.Args = append(agent.Args, "--kubeconfig="+n.Kubeconfig, "--hostname-override="+name)
	maps.Copy(agent.Settings, controlplane.NodeSettings(
		harness.FreePort(c.t), certificate, key, c.CAFile()))
	c.t.Cleanup(n.leave)
	return n
}

// leave removes the node from the cluster.
func (n Node) leave() {
	n.Kill()
	n.cluster.delete("node "+n.Name, n.cluster.Client.CoreV1().Nodes().Delete, n.Name)
}

// AwaitReady waits until the scheduler may choose the node.
func (c Cluster) AwaitReady(node string) {
	c.t.Helper()
	harness.Eventually(c.t, "node "+node+" is ready", func() error {
		n, err := c.Client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, is := nodeutil.GetNodeCondition(&n.Status, v1.NodeReady)
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
			return t.Key != v1.TaintNodeMemoryPressure // a test may want that
		})
		if is != nil && is.Status == v1.ConditionTrue && !tainted {
			return nil
		}
		return fmt.Errorf("conditions %+v, taints %+v", n.Status.Conditions, n.Spec.Taints)
	})
}
