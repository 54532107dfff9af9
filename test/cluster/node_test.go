package cluster_test

import (
	"fmt"
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
		c.Apply(workload("Deployment", "apps/v1", "web", "  replicas: 2\n") + "---\n" +
			workload("DaemonSet", "apps/v1", "agent", "") + `---
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
		awaitReady(t, c, n.Name)
		if uid() == before {
			t.Error("the node is the one that was deleted")
		}
		c.Apply(workload("Deployment", "apps/v1", "web", ""))
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
	})
}

// TestMirrorPod: a static pod is seen in the API, is made there again when it is deleted, without
// a restart, and goes with its manifest.
func TestMirrorPod(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		n.Pod("static", fmt.Sprintf("apiVersion: v1\nkind: Pod\n"+
			"metadata: {name: static, namespace: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n"+
			"  containers:\n  - {name: main, image: registry.test/work:1}\n", c.Namespace))
		name := "static-" + n.Name
		eventually(t, c, "Running", "get", "pods", name, "-o", "jsonpath={.status.phase}")
		const facts = "jsonpath={.status.containerStatuses[0].containerID} " +
			"{.metadata.annotations.kubernetes\\.io/config\\.source} " +
			"{.metadata.ownerReferences[0].kind}"
		before := c.MustRun("get", "pod", name, "-o", facts)
		if !strings.HasSuffix(before, " file Node") {
			t.Errorf("the mirror pod is %q", before)
		}
		uid := c.MustRun("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
		c.MustRun("delete", "pod", name, "--grace-period=0", "--force")
		eventually(t, c, before, "get", "pod", name, "-o", facts)
		if c.MustRun("get", "pod", name, "-o", "jsonpath={.metadata.uid}") == uid {
			t.Error("the mirror pod is the one that was deleted")
		}
		n.RemovePod("static")
		eventually(t, c, "", "get", "pod", name, "--ignore-not-found", "-o", "name")
	})
}
