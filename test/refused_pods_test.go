package test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestPodsTheNodeRefuses: a pod that must not run on this node fails with the kubelet's reason.
func TestPodsTheNodeRefuses(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--node-labels=example.com/disk=ssd")
	n.Start()
	const main = "containers: [{name: main, image: sim.local/app, ports: [%s]}]"
	n.Pod("here", manifestOf("here", "nodeSelector: {example.com/disk: ssd}\n  "+
		fmt.Sprintf(main, "{containerPort: 80, hostPort: 8080}")))
	n.AwaitPhase("here-node", v1.PodRunning)
	for name, tt := range map[string]struct{ spec, reason string }{
		"elsewhere": {"nodeSelector: {example.com/disk: hdd}\n  " + fmt.Sprintf(main, ""),
			"NodeAffinity"},
		"windows": {"os: {name: windows}\n  " + fmt.Sprintf(main, ""), "PodOSNotSupported"},
		"port":    {fmt.Sprintf(main, "{containerPort: 81, hostPort: 8080}"), "NodePorts"},
	} {
		n.Pod(name, manifestOf(name, tt.spec))
		if got := n.AwaitPhase(name+"-node", v1.PodFailed).Status; got.Reason != tt.reason {
			t.Errorf("%s: %s: %s; want %s", name, got.Reason, got.Message, tt.reason)
		}
	}
}
