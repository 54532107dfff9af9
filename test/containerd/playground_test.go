package containerd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// playground is the command, with its temporary directory in dir.
func playground(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	rig.Require(t)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{
		"playground", "--runtime=containerd", "--tools=" + rig.Binaries(t),
	}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd
}

// shortDir is a directory with a path that is short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := fmt.Sprintf("/tmp/n%d", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("the playground left something: %v", err)
		}
	})
	return dir
}

func TestPlaygroundOnce(t *testing.T) {
	needsCPUs(t, 2)
	dir := shortDir(t)
	rig.Alone(t)
	before := outside(t)
	cmd := playground(t, dir, "--once", "-o", "json")
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, trouble.String())
	}
	var rows []placement.Row
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	got := map[string]placement.Row{}
	for _, r := range rows {
		got[r.Pod] = r
	}
	if r := got["exclusive-node"]; r.Phase != v1.PodRunning || !r.Exclusive || r.CPUs == "" ||
		strings.ContainsAny(r.CPUs, ",-") || len(r.Devices["example.com/gpu"]) != 1 ||
		r.Aligned == nil || !*r.Aligned {
		t.Errorf("exclusive: %+v", r)
	}
	if r := got["shared-node"]; r.Phase != v1.PodRunning || r.Exclusive || r.CPUs == "" ||
		len(r.Devices["example.com/gpu"]) != 1 {
		t.Errorf("shared: %+v", r)
	}
	if r := got["batch-node"]; r.Phase != v1.PodSucceeded {
		t.Errorf("batch: %+v", r)
	}
	if r := got["crash-node"]; r.Phase != v1.PodRunning || r.Reason != "CrashLoopBackOff" {
		t.Errorf("crash: %+v", r)
	}
	if len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
	nothingOf(t, dir, before)
}

// TestPlaygroundInterrupted: it cleans up whenever it is told to end.
func TestPlaygroundInterrupted(t *testing.T) {
	dir := shortDir(t)
	rig.Alone(t)
	for _, tc := range []struct {
		name   string
		signal os.Signal
		after  string // a file in its directory; "": at once
	}{
		{"containerd starting", os.Interrupt, "c/config.toml"},
		{"pods starting", syscall.SIGTERM, "root/pods/*"},
		{"containers running", syscall.SIGHUP, "logs/*/*/*.log"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := outside(t)
			cmd := playground(t, dir)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			await(t, filepath.Join(dir, "numalet-*", tc.after), ended)
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v:\n%s", err, out.String())
			}
			nothingOf(t, dir, before)
		})
	}
}

// await waits for a file, or for the end of the program, which is an error.
func await(t *testing.T, pattern string, ended <-chan error) {
	t.Helper()
	harness.Eventually(t, pattern+" is there", func() error {
		select {
		case err := <-ended:
			t.Fatalf("it ended before: %v", err)
		default:
		}
		found, err := filepath.Glob(pattern)
		if err == nil && len(found) == 0 {
			err = os.ErrNotExist
		}
		return err
	})
}

// outside are the files that playgrounds have beside their directories.
func outside(t *testing.T) (out []string) {
	t.Helper()
	for _, pattern := range []string{
		"/sys/fs/cgroup/numalet-[0-9]*", "/sys/fs/cgroup/*/numalet-[0-9]*",
		"/var/lib/cni/results/numalet-*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// nothingOf looks for what a playground in dir may have left on the machine, which had the files in
// before outside of it.
func nothingOf(t *testing.T, dir string, before []string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(left, outside(t)...) {
		if !slices.Contains(before, file) {
			t.Errorf("%s is left", file)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		raw, _ := os.ReadFile(file) // it may have ended
		args := strings.Split(string(raw), "\x00")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, dir) }) {
			t.Errorf("process %s is left: %s", filepath.Base(filepath.Dir(file)),
				fmt.Sprint(args))
		}
	}
}
