package numa_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	clusterrig "github.com/numalet/numalet/test/cluster/rig"
)

// hostMAC is the address of the guest's interface that leads to its host, and hostIP the host's
// there (the user network of qemu's manual).
const hostMAC, hostIP = "52:54:00:6e:75:6d", "10.0.2.2"

// TestSwap boots the machine as a node of a control plane that runs here: what may swap comes from
// an API server.
func TestSwap(t *testing.T) {
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
	m.more = []string{"-netdev", "user,id=host", "-device",
		"virtio-net-pci,bus=pcie.0,netdev=host,mac=" + hostMAC}
	results := run(t, m, "guest:^TestSwap")
	results.print(os.Stdout, fmt.Sprintf("swap, %.0f s", time.Since(began).Seconds()))
	results.subtests(t)
}

// fromGuest is a kubeconfig as it is to be in the guest, where the API server has another address
// and its certificate the same.
func fromGuest(t *testing.T, file, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = strings.Replace(cluster.Server, "127.0.0.1", hostIP, 1)
		cluster.TLSServerName = "localhost"
	}
	for _, context := range config.Contexts {
		context.Namespace = namespace
	}
	out := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, out); err != nil {
		t.Fatal(err)
	}
	return out
}
