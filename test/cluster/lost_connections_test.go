package cluster_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// noticed is within what the agent goes on over other connections after those that it had lead
// nowhere: 15 s until it knows, and time for a slow machine. A kubelet knows after 45 s.
const noticed = 30 * time.Second

// TestLostConnections: packets of the connections that there are are dropped, without a word
// to either side. The lease goes on to be renewed, a pod that is made then starts, what changes in
// an object that a running pod uses comes to its volume, and an event tells. Heartbeats would notice
// it themselves only much later: their time for an answer is long here.
func TestLostConnections(t *testing.T) {
	c, agent := rig.Start(t), harness.New(t)
	for setting, value := range map[string]any{
		"nodeLeaseDurationSeconds": 20, "nodeStatusUpdateFrequency": "1m",
	} {
		agent.Settings[setting] = value
	}
	n := c.Join(agent, "nowhere")
	proxy := stand(t, c, n, 1)
	n.Start()
	c.AwaitReady(n.Name)
	c.Apply(objects)
	c.Apply(consumer(n.Name, "before", ""))
	before := await(t, c, c.Namespace, "before", runs)

	began := time.Now()
	if count := proxy.Swallow(); count < 3 {
		t.Fatalf("the agent has %d connections, want three", count)
	}
	c.Apply(bound(n.Name, "after", ""))
	c.MustRun("patch", "configmap", "cfg", "--patch", `{"data": {"color": "green"}}`)
	await(t, c, c.Namespace, "after", runs)
	awaitFile(t, n, before, "kubernetes.io~configmap/cfg/deep/color", "green")
	n.Eventually("the lease is renewed", func() error {
		lease, err := c.Client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), n.Name,
			metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(began.Add(time.Second)) {
			err = fmt.Errorf("it was renewed at %v", lease.Spec.RenewTime)
		}
		return err
	})
	if took := time.Since(began); took > noticed {
		t.Errorf("all went on after %v, want within %v", took, noticed)
	} else {
		t.Logf("all went on after %v", took)
	}
	eventually(t, c, "Warning", "get", "events", "-n", "default", "--field-selector",
		"involvedObject.name="+n.Name+",reason=APIServerConnectionLost", "-o",
		"jsonpath={.items[0].type}")
}
