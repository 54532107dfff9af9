package guest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/harness"
)

// TestSecondNode: after a reboot the pods run again, with what they had, and the plugins are asked
// anew for the devices.
func TestSecondNode(t *testing.T) {
	before := recall(t)
	if boot := said(t, bootID); boot == before.Boot {
		t.Fatalf("the machine has not been rebooted: boot id %s", boot)
	}
	describeDisks(t, filepath.Join(runtimeDir, "cdi")) // they may have other names now
	startRuntime(t)
	g := newGuest(t, "unix://"+filepath.Join(runtimeDir, "containerd.sock"))
	g.Settings["topologyManagerPolicy"] = "single-numa-node"
	g.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "1s"}
	g.Start()
	t.Run("pods", func(t *testing.T) {
		g := g.as(t)
		g.onNodes(g.exclusive("near", near()), 1)
		g.onNodes(g.exclusive("pair", pair()), 1)
		g.shared("shared", g.pool())
		for name, now := range g.facts("near", "pair", "shared") {
			was := before.Pods[name]
			if !reflect.DeepEqual(now.Promised, was.Promised) {
				t.Errorf("%s had %+v, has %+v", name, was.Promised, now.Promised)
			}
			if now.ID == was.ID {
				t.Errorf("%s has container %s as before the reboot", name, now.ID)
			}
		}
	})
	t.Run("devices", func(t *testing.T) {
		calls := g.as(t).calls()
		row(t, "%d calls of Allocate, boot %s", calls, said(t, bootID))
		if calls != 3 { // near has two resources, pair one
			t.Errorf("the plugins were called %d times with Allocate, want 3", calls)
		}
	})
	t.Run("clock", func(t *testing.T) { testClock(g.as(t)) })
	t.Run("interfaces", func(t *testing.T) { testInterfaces(g.as(t)) })
	daemons := protect(t, g)
	t.Run("memory QoS", func(t *testing.T) { testMemoryQoS(g.as(t), daemons) })
	t.Run("users", func(t *testing.T) { testUsers(g.as(t)) })
}

// startRuntime starts the containerd of the boot before, with the configuration and the data that
// it left. What it keeps in /run on a real machine has gone with the reboot.
func startRuntime(t *testing.T) {
	t.Helper()
	for _, name := range []string{"state", "shim", "runc"} {
		err := unix.Mount("tmpfs", filepath.Join(runtimeDir, name), "tmpfs", 0, "")
		if err != nil {
			t.Fatalf("mount %s: %v", name, err)
		}
	}
	file := filepath.Join(runtimeDir, "second.log")
	log, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("/bin/containerd", "--config", filepath.Join(runtimeDir, "config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log:\n%s", logTail(file))
		}
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
	})
	harness.Eventually(t, "containerd answers", func() error {
		conn, err := net.Dial("unix", filepath.Join(runtimeDir, "containerd.sock"))
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		return conn.Close()
	})
}
