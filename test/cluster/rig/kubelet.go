package rig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// ownDevicePlugins starts a program in a mount namespace of its own, where
// /var/lib/kubelet/device-plugins, which the kubelet always uses for device plugins, is the one
// below the root directory in the first argument. Other mounts of the program end with it, except
// for volumes: the root directory is shared with the runtime, as on a node.
const ownDevicePlugins = `set -e
mount --make-private "$(findmnt --noheadings --output TARGET --target /var/lib)"
mount -t tmpfs numalet-test /var/lib
mkdir -p /var/lib/kubelet/device-plugins "$1/device-plugins"
mount --bind "$1/device-plugins" /var/lib/kubelet/device-plugins
shift
exec "$@"`

// StockKubelet makes the node run the upstream kubelet in place of numalet, on the same runtime,
// root directory and configuration, standalone until Join. Where it cannot run the test is skipped;
// in CI it fails.
func StockKubelet(t testing.TB, agent *harness.Node) {
	t.Helper()
	if os.Geteuid() != 0 {
		scratch.LeaveOut(t, "the kubelet needs root")
	}
	Share(t, agent.Root)
	agent.Program = []string{"unshare", "--mount", "--propagation=unchanged",
		"sh", "-c", ownDevicePlugins, "kubelet", agent.Root, filepath.Join(Binaries(t), "kubelet")}
	ThisMachine(agent)
	// Otherwise it evicts pods because of what else runs on this machine.
	agent.Settings["evictionHard"] = map[string]string{
		"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
		"imagefs.available": "0%", "imagefs.inodesFree": "0%",
	}
	agent.Settings["port"] = harness.FreePort(t)
	agent.Settings["authentication"] = map[string]any{"webhook": map[string]any{"enabled": false}}
	agent.Settings["authorization"] = map[string]any{"mode": "AlwaysAllow"}
}

// ThisMachine makes an agent use the machine that it runs on, as a kubelet does.
func ThisMachine(agent *harness.Node) {
	agent.Args = slices.DeleteFunc(slices.Clone(agent.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--topology-from=")
	})
}

// Share makes mounts in dir, the root directory of a node, visible in every mount namespace that
// has dir, as everywhere under systemd. It ends with the node's other mounts.
func Share(t testing.TB, dir string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o750),
		unix.Mount(dir, dir, "", unix.MS_BIND, ""),
		unix.Mount("", dir, "", unix.MS_SHARED, "")); err != nil {
		t.Fatalf("share the mounts in %s: %v", dir, err)
	}
}
