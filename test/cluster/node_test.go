package cluster_test

import (
	"strings"
	"testing"

	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
)

// TestDrain: the eviction API keeps a disruption budget, and kubectl drain empties the node but for
// its daemons.
func TestDrain(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		c.Apply(controller("Deployment", "apps/v1", "web", "  replicas: 2\n") + "---\n" +
			controller("DaemonSet", "apps/v1", "agent", "") + `---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: web}}
`)
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
		c.MustRun("rollout", "status", "daemonset/agent", "--timeout=1m")
		eventually(t, c, "2 2", "get", "pdb", "web", "-o",
			"jsonpath={.status.currentHealthy} {.status.desiredHealthy}")
		pods := strings.Fields(c.MustRun("get", "pods", "-l", "app=web", "-o",
			"jsonpath={.items[*].metadata.name}"))
		err := c.Client.PolicyV1().Evictions(c.Namespace).Evict(t.Context(), &policy.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pods[0], Namespace: c.Namespace}})
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("an eviction against the budget: %v", err)
		}
		c.MustRun("delete", "pdb", "web")
		c.MustRun("drain", n.Name, "--ignore-daemonsets", "--timeout=1m")
		for _, pod := range pods {
			eventually(t, c, "", "get", "pod", pod, "--ignore-not-found", "-o", "name")
		}
		eventually(t, c, "Running", "get", "pods", "-l", "app=agent", "-o",
			"jsonpath={.items[*].status.phase}")
		c.MustRun("uncordon", n.Name)
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
	})
}

// TestNodeDeleted: a node whose object was deleted is made again by an agent that is started
// again, and pods run there.
func TestNodeDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		uid := func() string {
			return c.MustRun("get", "node", n.Name, "-o", "jsonpath={.metadata.uid}")
		}
		before := uid()
		n.Kill()
		c.MustRun("delete", "node", n.Name)
		n.Start()
		c.AwaitReady(n.Name)
		if uid() == before {
			t.Error("the node is the one that was deleted")
		}
		c.Apply(controller("Deployment", "apps/v1", "web", ""))
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
	})
}
