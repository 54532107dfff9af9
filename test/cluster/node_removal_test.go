package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestDrain: a cordoned node gets no new pods and keeps its own; the eviction API and kubectl drain
// respect a disruption budget, and drain leaves only the daemons.
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
		const names = "jsonpath={.items[*].metadata.name}"
		pods := strings.Fields(c.MustRun("get", "pods", "-l", "app=web", "-o", names))
		daemon := c.MustRun("get", "pods", "-l", "app=agent", "-o", names)
		_, err := c.Run("drain", n.Name, "--ignore-daemonsets", "--timeout=1s")
		if err == nil || !strings.Contains(err.Error(), "violate the pod's disruption budget") {
			t.Errorf("kubectl drain against the budget: %v", err)
		}
		c.MustRun("scale", "deployment/web", "--replicas=3")
		harness.Eventually(t, "a third pod finds no node", func() error {
			text, err := c.Run("get", "pods", "-l", "app=web", "-o",
				"jsonpath={.items[*].status.conditions[?(@.reason=='Unschedulable')].message}")
			if err == nil && !strings.Contains(text, "1 node(s) were unschedulable") {
				err = fmt.Errorf("they say %q", text)
			}
			return err
		})
		c.MustRun("scale", "deployment/web", "--replicas=2")
		eventually(t, c, strings.Join(pods, " "), "get", "pods", "-l", "app=web", "-o", names)
		err = c.Client.PolicyV1().Evictions(c.Namespace).Evict(t.Context(), &policy.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pods[0], Namespace: c.Namespace}})
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("an eviction against the budget: %v", err)
		}
		c.MustRun("delete", "pdb", "web")
		c.MustRun("drain", n.Name, "--ignore-daemonsets", "--timeout=1m")
		for _, pod := range pods {
			eventually(t, c, "", "get", "pod", pod, "--ignore-not-found", "-o", "name")
		}
		eventually(t, c, daemon+" Running", "get", "pods", "-l", "app=agent", "-o",
			"jsonpath={.items[*].metadata.name} {.items[*].status.phase}")
		c.MustRun("uncordon", n.Name)
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
	})
}

// TestNodeDeleted: if its Node is deleted, the agent keeps running its pods, and only a restarted
// agent creates the Node again. The pods are then still the same, and new ones run.
func TestNodeDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		uid := c.MustRun("get", "node", n.Name, "-o", "jsonpath={.metadata.uid}")
		c.Apply(bound(n.Name, "before", ""))
		before := await(t, c, c.Namespace, "before", runs)
		c.MustRun("delete", "node", n.Name)
		c.Apply(bound(n.Name, "without", ""))
		without := await(t, c, c.Namespace, "without", runs)
		c.MustRun("delete", "pod", "without", "--timeout=1m")
		if out := c.MustRun("get", "node", n.Name, "--ignore-not-found"); out != "" {
			t.Errorf("the node was made again:\n%s", out)
		}
		n.Kill()
		n.Start()
		c.AwaitReady(n.Name)
		if now := c.MustRun("get", "node", n.Name, "-o", "jsonpath={.metadata.uid}"); now == uid {
			t.Error("the node is the one that was deleted")
		}
		c.Apply(controller("Deployment", "apps/v1", "web", ""))
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
		after := await(t, c, c.Namespace, "before", runs)
		if containerOf(after) != containerOf(before) {
			t.Errorf("before: %+v\nafter: %+v\nwithout: %+v", before.Status, after.Status,
				without.Status)
		}
	})
}
