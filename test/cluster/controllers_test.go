package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
)

// simulated is the annotation with the script of the container main.
const simulated = crisim.AnnotationPrefix + "main"

// TestJob: its pods run to their end, one after the other, and a failed one is replaced.
func TestJob(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, _ rig.Node) {
		job := func(name, result, more string) string {
			return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec:\n%s"+
				"  template:\n    metadata: {annotations: {%q: %s}}\n"+
				"    spec:\n      restartPolicy: Never\n      containers:\n"+
				"      - {name: main, image: registry.test/work:1}\n",
				name, more, simulated, result)
		}
		c.Apply(job("good", "exit=0", "  completions: 2\n"))
		c.MustRun("wait", "--for=condition=Complete", "job/good", "--timeout=1m")
		eventually(t, c, "Succeeded Succeeded", "get", "pods", "-l", "job-name=good",
			"-o", "jsonpath={.items[*].status.phase}")
		c.Apply(job("bad", "exit=3", "  backoffLimit: 1\n"))
		c.MustRun("wait", "--for=condition=Failed", "job/bad", "--timeout=1m")
		eventually(t, c, "3 3", "get", "pods", "-l", "job-name=bad", "-o", "jsonpath="+
			"{.items[*].status.containerStatuses[0].state.terminated.exitCode}")
		c.MustRun("delete", "job", "--all", "--timeout=1m")
		eventually(t, c, "", "get", "pods", "-o", "name")
	})
}

// TestDaemonSet: it has its pod on the node, replaces it when it is deleted, and rolls out an
// update.
func TestDaemonSet(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		agent := controller("DaemonSet", "apps/v1", "agent", "")
		c.Apply(agent)
		c.MustRun("rollout", "status", "daemonset/agent", "--timeout=1m")
		first := c.MustRun("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
		if node := c.MustRun("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"); node !=
			n.Name {
			t.Errorf("it is on %q", node)
		}
		c.MustRun("delete", "pod", "-l", "app=agent", "--timeout=1m")
		c.MustRun("rollout", "status", "daemonset/agent", "--timeout=1m")
		second := c.MustRun("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
		if second == first || strings.Contains(second, " ") {
			t.Errorf("pods %q, before they were deleted %q", second, first)
		}
		c.Apply(strings.Replace(agent, "work:1", "work:2", 1))
		c.MustRun("rollout", "status", "daemonset/agent", "--timeout=1m")
		eventually(t, c, "registry.test/work:2", "get", "pods", "-o",
			"jsonpath={.items[*].spec.containers[0].image}")
	})
}

// TestStatefulSet: its pods come in order, and each is replaced under its own name.
func TestStatefulSet(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, _ rig.Node) {
		c.Apply(controller("StatefulSet", "apps/v1", "db", "  serviceName: db\n  replicas: 2\n"))
		c.MustRun("rollout", "status", "statefulset/db", "--timeout=1m")
		names := "jsonpath={.items[*].metadata.name}"
		eventually(t, c, "db-0 db-1", "get", "pods", "-o", names)
		before := c.MustRun("get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}")
		c.MustRun("delete", "pod", "db-0", "--timeout=1m")
		c.MustRun("rollout", "status", "statefulset/db", "--timeout=1m")
		if c.MustRun("get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}") == before {
			t.Error("db-0 is the pod that was deleted")
		}
		c.MustRun("scale", "statefulset/db", "--replicas=1")
		eventually(t, c, "db-0", "get", "pods", "-o", names)
	})
}
