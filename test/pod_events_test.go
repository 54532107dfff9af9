package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// awaitPodEvent waits until a pod has an event that begins with this text.
func awaitPodEvent(n *harness.Node, pod, want string) {
	n.Eventually(pod+" has the event "+want, func() error {
		if text := eventsOf(n, pod); !strings.Contains("\n"+text, "\n"+want) {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
}

// TestNetworkNotReady: while the runtime has no network for pods, pods in the host's network start,
// because one of them may bring the network. The others wait, get an event, and start once the
// network is there.
func TestNetworkNotReady(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Runtime.SetReady(crisim.Ready{Runtime: true, Message: "cni plugin not initialized"})
	for name, spec := range map[string]string{"plain": "", "brings": "hostNetwork: true, "} {
		n.Pod(name, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s
 containers: [{name: main, image: "registry.test/work:1"}]}}`, name, spec))
	}
	n.Start()
	n.AwaitPhase("brings-node", v1.PodRunning)
	awaitPodEvent(n, "plain-node", "NetworkNotReady: network is not ready: container runtime network "+
		"not ready: NetworkReady=false reason:")
	for _, s := range n.Runtime.State().Sandboxes {
		if s.Pod == "plain-node" {
			t.Errorf("the pod has sandbox %s without a network", s.ID)
		}
	}
	n.Runtime.SetReady(crisim.Ready{Runtime: true, Network: true})
	n.AwaitPhase("plain-node", v1.PodRunning)
}

// TestResolvConfBeyondLimits: a node whose resolver configuration exceeds the limits of pods
// reports it.
func TestResolvConfBeyondLimits(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	path := filepath.Join(n.Dir, "resolv.conf")
	domains := strings.Repeat(" a.example", 33)
	if err := os.WriteFile(path, []byte("search"+domains+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Settings["resolvConf"] = path
	n.Start()
	awaitNoted(n, "CheckLimitsForResolvConf", "Resolv.conf file '"+path+
		"' contains search line consisting of more than 32 domains!")
}

// TestEventsOfSandboxes: the replacement of a dead sandbox causes an event, and so does a sandbox
// that cannot be stopped.
func TestEventsOfSandboxes(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Pod("app", `{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {
 terminationGracePeriodSeconds: 1, containers: [{name: main, image: "registry.test/work:1"}]}}`)
	n.Start()
	n.AwaitPhase("app-node", v1.PodRunning)
	if text := eventsOf(n, "app-node"); strings.Contains(text, "SandboxChanged") {
		t.Errorf("the first sandbox is no change:\n%s", text)
	}
	if err := n.Runtime.KillSandbox("default/app-node"); err != nil {
		t.Fatal(err)
	}
	awaitPodEvent(n, "app-node", "SandboxChanged: Pod sandbox changed, it will be killed and re-created.")
	n.Eventually("the container runs in the new sandbox", func() error {
		for _, c := range n.Runtime.State().Containers {
			if c.Subject.Pod == "app-node" && c.Running() {
				return nil
			}
		}
		return errors.New("none of the pod's containers runs")
	})
	if err := n.Runtime.SetFault(crisim.Fault{Method: "StopContainer", Error: "no shim"}); err != nil {
		t.Fatal(err)
	}
	n.RemovePod("app")
	awaitPodEvent(n, "app-node", "FailedKillPod: error killing pod: ")
	n.Runtime.ClearFaults()
	n.AwaitGone("app-node")
}
