package numa_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterrig "github.com/numalet/numalet/test/cluster/rig"
)

// TestShutdown boots a machine with systemd as its first process, whose pods run under numalet and end
// since somebody turns the machine off; and boots it again. With NUMALET_SHUTDOWN_PEER=1 another machine
// does the same with the stock kubelet, for comparison.
func TestShutdown(t *testing.T) {
	kernel := require(t)
	agents := map[string]map[string]string{"numalet": {}}
	if os.Getenv("NUMALET_SHUTDOWN_PEER") != "" {
		agents["kubelet"] = map[string]string{
			"numa/kubelet": filepath.Join(clusterrig.Binaries(t), "kubelet"),
		}
	}
	for agent, files := range agents {
		for _, file := range systemd(t) {
			files[file] = file
		}
		disk := makeDisk(t, kernel, files)
		for _, boot := range []string{"Off", "On"} {
			if !t.Run(agent+" "+boot, func(t *testing.T) {
				began := time.Now()
				m := usualMachine(kernel, disk)
				m.settings = []string{"NUMALET_SYSTEMD=1", "NUMALET_AGENT=" + agent}
				results := run(t, m, "guest:^TestShutdownTurned"+boot)
				results.print(os.Stdout, fmt.Sprintf("%s, turned %s, %.0f s", agent,
					strings.ToLower(boot), time.Since(began).Seconds()))
				results.subtests(t)
			}) {
				break
			}
		}
	}
}

// systemd lists the host's files of systemd, logind and the system bus, with the libraries they need.
func systemd(t *testing.T) (all []string) {
	t.Helper()
	for _, program := range []string{
		"/lib/systemd/systemd", "/lib/systemd/systemd-logind", "/lib/systemd/systemd-shutdown",
		"/bin/systemctl", "/usr/bin/dbus-daemon", "/usr/bin/busctl", "/usr/bin/systemd-inhibit",
	} {
		all = append(append(all, program), libraries(t, program)...)
	}
	for _, folder := range []string{"/lib/systemd/system", "/usr/share/dbus-1"} {
		if err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() { // a link would have the machine start more
				all = append(all, path)
			}
			return err
		}); err != nil {
			leaveOut(t, fmt.Sprint(err))
		}
	}
	return all
}

// addSystemd writes what systemd, the bus and the tests' unit need beside their files.
func addSystemd(root string) error {
	files := map[string]string{
		"etc/os-release": "ID=numa\n", "etc/machine-id": strings.Repeat("0a", 16) + "\n",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n",
		"etc/group":  "root:x:0:\nmessagebus:x:100:\n",
		"etc/systemd/system/numa.target": "[Unit]\nRequires=numa.service dbus.socket\n" +
			"After=numa.service\nAllowIsolate=yes\n",
		// It is left to end by itself: what it sees of the shutdown is what is tested.
		"etc/systemd/system/numa.service": `[Unit]
Requires=dbus.socket
After=dbus.socket
[Service]
EnvironmentFile=/run/numa.env
WorkingDirectory=/numa
ExecStart=/bin/sh -c 'echo "package guest" >/dev/ttyS1; p=$${NUMALET_RUN#*:}; ` +
			`./guest.test -test.v=test2json -test.run "$$p" >/dev/ttyS1 2>/dev/ttyS0; systemctl poweroff'
KillMode=process
KillSignal=SIGCONT
SendSIGKILL=no
TimeoutStopSec=300
StandardError=null
StandardOutput=null
`,
	}
	var errs []error
	for path, text := range files {
		path = filepath.Join(root, path)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(append(errs, os.Symlink("../run", filepath.Join(root, "var/run")),
		os.Symlink("systemd-logind.service",
			filepath.Join(root, "lib/systemd/system/dbus-org.freedesktop.login1.service")))...)
}
