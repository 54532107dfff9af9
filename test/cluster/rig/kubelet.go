package rig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// ownDevicePlugins starts a program in a mount namespace of its own, where
// /var/lib/kubelet/device-plugins, which the kubelet always uses for device plugins, is the one
// below the root directory in the second argument. Other mounts of the program end with the
// namespace, except for volumes: the root directory is shared with the runtime, as on a node.
//
// A process, named by the file in the first argument, keeps the namespace, and a program that
// starts again gets the same: the kernel knows the file of a loop device by its mount, so a kubelet
// finds what the one before had only in the same namespace, as on a node.
const ownDevicePlugins = `set -e
if [ -e "$1" ]; then
	keeper=$(cat "$1")
	shift 2
	exec nsenter --mount="/proc/$keeper/ns/mnt" "$@"
fi
exec unshare --mount --propagation=unchanged sh -c 'set -e
mount --make-private "$(findmnt --noheadings --output TARGET --target /var/lib)"
mount -t tmpfs numalet-test /var/lib
mkdir -p /var/lib/kubelet/device-plugins "$2/device-plugins"
mount --bind "$2/device-plugins" /var/lib/kubelet/device-plugins
setsid sleep 3600 </dev/null >/dev/null 2>&1 &
echo $! >"$1"
shift 2
exec "$@"' kubelet "$@"`

// StockKubelet makes the node run the upstream kubelet in place of numalet, on the same runtime,
// root directory and configuration, standalone until Join. Where it cannot run the test is skipped;
// in CI it fails.
func StockKubelet(t testing.TB, agent *harness.Node) {
	t.Helper()
	if os.Geteuid() != 0 {
		scratch.LeaveOut(t, "the kubelet needs root")
	}
	Share(t, agent.Root)
	keeper := filepath.Join(t.TempDir(), "keeper")
	t.Cleanup(func() { endKeeper(t, keeper) })
	agent.Program = []string{"sh", "-c", ownDevicePlugins, "kubelet", keeper, agent.Root,
		filepath.Join(Binaries(t), "kubelet")}
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

// endKeeper ends the process that keeps the namespace of ownDevicePlugins, if there is one.
func endKeeper(t testing.TB, file string) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return // the kubelet never started
	}
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, parseErr); err != nil {
		t.Errorf("who keeps the kubelet's namespace: %v", err)
	} else if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("end who keeps the kubelet's namespace: %v", err)
	}
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
