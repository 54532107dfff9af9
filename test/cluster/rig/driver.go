package rig

import (
	"os"
	"path/filepath"

	"github.com/numalet/numalet/test/cluster/drivers"
)

// Driver returns Kubernetes' test driver for resource claims, which does not run yet, beside the
// node's agent. Of the configuration only the name, instance, devices and CDI count. It ends with
// the test.
func (n Node) Driver(c drivers.Config) *drivers.Driver {
	t := n.cluster.t
	t.Helper()
	c.Binary = filepath.Join(Binaries(t), "dra-test-driver")
	c.Node, c.Root = n.Name, n.Root
	dir, err := os.MkdirTemp(n.Dir, "") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = dir
	c.Kubeconfig = filepath.Join(n.Dir, "driver-kubeconfig")
	if _, err := os.Stat(c.Kubeconfig); err != nil {
		if err := n.cluster.Kubeconfig(c.Kubeconfig, "driver", "system:masters"); err != nil {
			t.Fatal(err)
		}
	}
	d, err := drivers.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			t.Error(err)
		}
	})
	return d
}
