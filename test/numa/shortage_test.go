package numa_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterrig "github.com/numalet/numalet/test/cluster/rig"
)

// TestShortage boots a small machine as a node of a control plane that runs here: pods that take all
// are evicted there, by numalet and by the stock kubelet.
func TestShortage(t *testing.T) {
	kernel := require(t)
	began := time.Now()
	c := clusterrig.Own(t)
	node := filepath.Join(t.TempDir(), "node.kubeconfig")
	if err := c.Kubeconfig(node, "system:node:node", "system:nodes"); err != nil {
		t.Fatal(err)
	}
	m := usualMachine(kernel, makeDisk(t, kernel, map[string]string{
		"numa/kubelet":          filepath.Join(clusterrig.Binaries(t), "kubelet"),
		"numa/node.kubeconfig":  fromGuest(t, node, c.Namespace),
		"numa/admin.kubeconfig": fromGuest(t, c.AdminKubeconfig(), c.Namespace),
	}))
	m.sockets = "" // two CPUs: each has one of the host, and what takes a second there takes one here
	m.more = []string{"-netdev", "user,id=host", "-device",
		"virtio-net-pci,bus=pcie.0,netdev=host,mac=" + hostMAC}
	m.settings = []string{"NUMALET_HUGE="}
	for _, name := range []string{"NUMALET_ROUNDS", "NUMALET_SHORTAGE", "NUMALET_AGENTS"} {
		if value := os.Getenv(name); value != "" {
			m.settings = append(m.settings, name+"="+value)
		}
	}
	results := run(t, m, "wake:.,guest:^TestShortage")
	results.print(os.Stdout, fmt.Sprintf("shortage, %.0f s", time.Since(began).Seconds()))
	results.subtests(t)
}
