package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestPolicyLabels: the label of a topology policy leads a pod that chooses the policy to a node
// that allows it, and none is rejected; the labels follow the agent's settings.
func TestPolicyLabels(t *testing.T) {
	c := rig.Start(t)
	open, closed := harness.New(t), harness.New(t)
	policies := func(n *harness.Node, own, choices string) {
		n.Settings["topologyManagerPolicy"] = own
		n.Settings["topologyManagerScope"] = "pod"
		n.Args = append(n.Args, "--pod-topology-policies="+choices)
	}
	n, other := c.Join(open, "open"), c.Join(closed, "closed")
	plain := slices.Clone(open.Args)
	policies(open, "best-effort", "none,single-numa-node")
	policies(closed, "restricted", "none")
	n.Start()
	other.Start()
	c.AwaitReady(n.Name)
	c.AwaitReady(other.Name)
	awaitPolicies(t, c, n.Name, "best-effort", "none", "best-effort", "single-numa-node")
	awaitPolicies(t, c, other.Name, "restricted", "none", "restricted")

	const label = `numalet.io/topology-policy.single-numa-node: "true"`
	choose := func(name, selector string) {
		c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, annotations: {
  numalet.io/topology-policy: single-numa-node}}, spec: {nodeSelector: {%s},
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: "registry.test/work:1", resources: {
  limits: {cpu: 2, memory: 64Mi}}}]}}`, name, selector))
	}
	choose("sent", label)
	await(t, c, c.Namespace, "sent", func(p *v1.Pod) bool {
		return runs(p) && p.Spec.NodeName == n.Name
	})
	choose("astray", "kubernetes.io/hostname: "+other.Name)
	await(t, c, c.Namespace, "astray", func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodFailed && p.Status.Reason == "PlacementForbidden"
	})
	c.MustRun("delete", "pod", "sent", "astray", "--timeout=1m")

	n.Kill()
	open.Args = plain
	policies(open, "restricted", "best-effort")
	n.Start()
	awaitPolicies(t, c, n.Name, "restricted", "best-effort", "restricted")
	choose("waiting", label)
	await(t, c, c.Namespace, "waiting", func(p *v1.Pod) bool {
		for _, condition := range p.Status.Conditions {
			if condition.Type == v1.PodScheduled {
				return condition.Reason == v1.PodReasonUnschedulable
			}
		}
		return false
	})
	c.MustRun("delete", "pod", "waiting", "--timeout=1m")
}

// awaitPolicies waits until a node's labels name its own policy and those that pods may choose, and
// no others.
func awaitPolicies(t *testing.T, c rig.Cluster, node, own string, choices ...string) {
	t.Helper()
	const prefix = "numalet.io/topology-"
	want := map[string]string{prefix + "policy": own, prefix + "scope": "pod"}
	for _, choice := range choices {
		want[prefix+"policy."+choice] = "true"
	}
	harness.Eventually(t, "the labels of "+node+" are as they should be", func() error {
		got, err := c.Client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		maps.DeleteFunc(got.Labels, func(key, _ string) bool {
			return !strings.HasPrefix(key, prefix)
		})
		if !maps.Equal(got.Labels, want) {
			return fmt.Errorf("they are %v, want %v", got.Labels, want)
		}
		return nil
	})
}
