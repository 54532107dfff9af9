package test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestClientsThatHoldConnections: many clients connect to an agent with few file descriptors and
// ask nothing. Pods still start, and other clients are answered.
func TestClientsThatHoldConnections(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["maxOpenFiles"] = 150
	n.Start()
	for _, at := range []struct{ network, address string }{
		{"tcp", strings.TrimPrefix(n.URL(""), "http://")},
		{"unix", filepath.Join(n.Root, "pod-resources", "kubelet.sock")},
		{"unix", filepath.Join(n.Root, "device-plugins", "kubelet.sock")},
	} {
		for range 100 {
			conn, err := net.Dial(at.network, at.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	n.Pod("own", twoDevices("own"))
	n.AwaitPhase("own-node", v1.PodRunning)
}
