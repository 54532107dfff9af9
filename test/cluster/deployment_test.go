package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// agents are the agents that a test's node can run.
var agents = []string{"numalet", "kubelet"}

// onEach runs a test on a node of each agent, on a simulated runtime: with the stock kubelet it
// shows that upstream's agent meets the test's demands.
func onEach(t *testing.T, test func(t *testing.T, c rig.Cluster, n rig.Node)) {
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t)
			agent := harness.New(t)
			if name == "kubelet" {
				rig.StockKubelet(t, agent)
			}
			n := c.Join(agent, name)
			n.Start()
			c.AwaitReady(n.Name)
			test(t, c, n)
		})
	}
}

// eventually waits until kubectl with these arguments prints want.
func eventually(t *testing.T, c rig.Cluster, want string, args ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("kubectl %s prints %q", strings.Join(args, " "), want),
		func() error {
			got, err := c.Run(args...)
			if err == nil && strings.TrimSpace(got) != want {
				err = fmt.Errorf("it prints %q", got)
			}
			return err
		})
}

const template = `
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: registry.test/work:1}
`

func controller(kind, api, name, more string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec:\n"+
		"  selector: {matchLabels: {app: %[3]s}}\n%s  template:%s", api, kind, name, more,
		strings.ReplaceAll(template, "NAME", name))
}

// TestDeployment: it is rolled out, updated, scaled down and deleted.
func TestDeployment(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		web := controller("Deployment", "apps/v1", "web", "  replicas: 3\n")
		c.Apply(web)
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
		before := c.MustRun("get", "pods", "-o", "name")
		c.Apply(strings.Replace(web, "work:1", "work:2", 1))
		c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
		eventually(t, c, strings.TrimSpace(strings.Repeat("registry.test/work:2 ", 3)),
			"get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")
		for _, name := range strings.Fields(before) {
			if strings.Contains(c.MustRun("get", "pods", "-o", "name"), name) {
				t.Errorf("%s is left", name)
			}
		}
		c.MustRun("scale", "deployment/web", "--replicas=1")
		eventually(t, c, "web", "get", "pods", "-o", "jsonpath={.items[*].metadata.labels.app}")
		c.MustRun("delete", "deployment/web")
		eventually(t, c, "", "get", "pods", "-o", "name")
	})
}
