package rig

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/test/scratch"
)

// bySystemd is set where systemd runs the test.
const bySystemd = "NUMALET_TEST_BY_SYSTEMD"

//go:embed systemd.sh
var systemdScript string

// testUnit is the unit that systemd runs; systemd ends with it.
const testUnit = `[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
FailureActionExitStatus=1
[Service]
Type=exec
EnvironmentFile=%s
WorkingDirectory=%s
ExecStart=%s -test.run=^%s$ -test.v
StandardOutput=file:%s
StandardError=inherit
TasksMax=infinity
LimitNOFILE=65536
`

// Systemd has the test, which is no part of another one, run by a systemd of its own, in new
// namespaces of processes, mounts and cgroups: there the runtimes and agents of the test have the
// cgroup driver systemd. It reports whether it is called there; otherwise the test has been run
// and there is nothing left to do.
func Systemd(t *testing.T) (inside bool) {
	t.Helper()
	if systemdRuns() {
		return true
	}
	Require(t)
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		scratch.LeaveOut(t, "needs systemd (apt-get install systemd)")
	}
	dir, group := scratch.Dir(t), strings.TrimPrefix(scratch.Cgroup("systemd"), "/")
	out := filepath.Join(dir, "out")
	t.Cleanup(func() { removeGroups(t, group) })
	if err := writeUnit(t.Name(), dir, out); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "systemd.sh"), group, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	said, err := cmd.CombinedOutput()
	text, errRead := os.ReadFile(out)
	if err = errors.Join(err, errRead); err != nil {
		t.Errorf("%v\nsystemd:\n%s\nthe test:\n%s", err, said, text)
	}
	return false
}

// writeUnit writes what systemd is to run, and what starts it.
func writeUnit(test, dir, out string) error {
	self, errSelf := os.Executable()
	at, errAt := os.Getwd()
	var env strings.Builder
	for _, pair := range append(os.Environ(), bySystemd+"=yes") {
		if name, value, ok := strings.Cut(pair, "="); ok && !strings.ContainsAny(name, "%() ") {
			fmt.Fprintf(&env, "%s=%s\n", name, strconv.Quote(value))
		}
	}
	file := filepath.Join(dir, "env")
	unit := fmt.Sprintf(testUnit, file, at, self, test, out)
	return errors.Join(errSelf, errAt, os.WriteFile(file, []byte(env.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "test.service"), []byte(unit), 0o600),
		os.WriteFile(filepath.Join(dir, "systemd.sh"), []byte(systemdScript), 0o600))
}

// removeGroups removes what was made below a cgroup, whose processes have ended.
func removeGroups(t *testing.T, group string) {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/" + group)
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range append(found, filepath.Join("/sys/fs/cgroup", group)) {
		var dirs []string
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil //nolint:nilerr // what is gone need not be removed
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			err = errors.Join(err, os.Remove(dirs[i]))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// systemdRuns reports whether systemd runs this process.
func systemdRuns() bool { return os.Getenv(bySystemd) != "" }
