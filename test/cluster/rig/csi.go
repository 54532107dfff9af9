package rig

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/child"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// CSIDriver is a CSI driver beside the node's agent, in a process of its own.
type CSIDriver struct {
	csidriver.Config
	Process *child.Server

	node  Node
	kills map[string]chan struct{} // of sidecars, by name
}

// Sidecars returns the folder with Kubernetes' sidecars of CSI drivers and csi-sanity:
// $NUMALET_CSI, or what test/tools/csi.sh builds.
func Sidecars(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("NUMALET_CSI"); dir != "" {
		return dir
	}
	return scratch.Build(t, "the sidecars of CSI drivers", "csi.sh")
}

// CSIDriver starts a driver, of whose configuration the name, what it offers, and the directory of
// the same driver on another node count. It ends with the test, and with it what is left of its
// volumes.
func (n Node) CSIDriver(c csidriver.Config) *CSIDriver {
	t := n.cluster.t
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil || os.Geteuid() != 0 {
		scratch.LeaveOut(t, "the tests' CSI driver needs root and loop devices (/dev/loop-control)")
	}
	if c.Dir == "" {
		dir, err := os.MkdirTemp(n.Dir, "") // paths of sockets are short
		if err != nil {
			t.Fatal(err)
		}
		c.Dir = dir
	}
	c.Node = n.Name
	c.Socket = filepath.Join(n.Root, "plugins", c.Name, "csi.sock")
	c.Registry = filepath.Join(n.Root, "plugins_registry")
	process, err := csidriver.Process(c)
	if err != nil {
		t.Fatal(err)
	}
	d := &CSIDriver{c, process, n, map[string]chan struct{}{}}
	t.Cleanup(func() {
		d.Process.Stop()
		if err := csidriver.Sweep(c.Dir); err != nil {
			t.Error(err)
		}
	})
	if err := d.Process.Start(); err != nil {
		t.Fatal(err)
	}
	return d
}

// Calls returns the calls to the driver until now.
func (d *CSIDriver) Calls() []csidriver.Call {
	t := d.node.cluster.t
	t.Helper()
	calls, err := csidriver.Calls(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// Order has calls go wrong from now on; without orders none does.
func (d *CSIDriver) Order(orders ...csidriver.Order) {
	d.node.cluster.t.Helper()
	if err := csidriver.Command(d.Dir, orders...); err != nil {
		d.node.cluster.t.Fatal(err)
	}
}

// Sidecar runs csi-attacher or csi-resizer beside the driver until the test ends. It is started
// again when it exits, as sidecars do that have lost their driver.
func (d *CSIDriver) Sidecar(name string, args ...string) {
	t := d.node.cluster.t
	t.Helper()
	harness.Eventually(t, "the driver serves", func() error {
		_, err := os.Stat(d.Socket)
		return err
	})
	s := &child.Server{
		Program: filepath.Join(Sidecars(t), name), Log: filepath.Join(d.Dir, name+".log"),
		Args: append([]string{"--csi-address=" + d.Socket,
			"--kubeconfig=" + d.node.cluster.AdminKubeconfig(),
			"--retry-interval-start=100ms", "--v=4"}, args...)}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	kills := make(chan struct{})
	d.kills[name] = kills
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-ctx.Done():
				s.Stop()
				return
			case <-kills:
				s.Kill()
			case <-s.Exited():
			}
			if !await.For(ctx, time.Second) || s.Start() != nil {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); ended.Wait() })
}

// KillSidecar kills a sidecar, which is started again a second later.
func (d *CSIDriver) KillSidecar(name string) {
	t := d.node.cluster.t
	t.Helper()
	select {
	case d.kills[name] <- struct{}{}:
	case <-time.After(harness.Patience):
		t.Fatalf("%s could not be started again", name)
	}
}
