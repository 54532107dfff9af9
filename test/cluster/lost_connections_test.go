package cluster_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// noticed bounds the time until the agent uses new connections: 15 s until it notices, and time for
// a slow machine. A kubelet notices after 45 s.
const noticed = 30 * time.Second

// TestLostConnections: the packets of all existing connections are dropped silently. The lease is
// still renewed, a new pod starts, a changed object reaches the volume of a running pod, and an
// event comes. Heartbeats alone would notice much later: their timeout is long here.
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
