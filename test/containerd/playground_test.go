package containerd_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
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

// shortDir returns where a playground makes its directory. It must leave nothing there.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := scratch.Dir(t)
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("the playground left something: %v", err)
		}
	})
	return dir
}

// allExamples has the playground begin with all examples, also with those that fill a small machine.
func allExamples(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples/containerd")
	if err != nil {
		t.Fatal(err)
	}
	return "--examples=" + dir
}

func TestPlaygroundOnce(t *testing.T) {
	needsCPUs(t, 2)
	dir := shortDir(t)
	rig.Alone(t)
	rows := once(t, playground(t, dir, "--once", "-o", "json", allExamples(t)), dir)
	got := map[string]assigned.Row{}
	for _, r := range rows {
		got[r.Pod] = r
	}
	if r := got["exclusive-node"]; r.State.Phase != v1.PodRunning || !r.Exclusive || r.CPUs == "" ||
		strings.ContainsAny(r.CPUs, ",-") || len(r.Devices["example.com/gpu"]) != 1 ||
		r.Aligned == nil || !*r.Aligned {
		t.Errorf("exclusive: %+v", r)
	}
	if r := got["shared-node"]; r.State.Phase != v1.PodRunning || r.Exclusive || r.CPUs == "" ||
		len(r.Devices["example.com/gpu"]) != 1 {
		t.Errorf("shared: %+v", r)
	}
	if r := got["batch-node"]; r.State.Phase != v1.PodSucceeded {
		t.Errorf("batch: %+v", r)
	}
	if r := got["crash-node"]; r.State.Phase != v1.PodRunning || r.State.Reason != "CrashLoopBackOff" {
		t.Errorf("crash: %+v", r)
	}
	if len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}

// TestPlaygroundOfPlainBuild: what "go build" makes with a C compiler at hand is dynamically linked.
// Its images work, and it knows the commit that it is of. Only its linking is made to be like that
// here, since otherwise most of what it consists of would be compiled once more.
func TestPlaygroundOfPlainBuild(t *testing.T) {
	rig.Require(t)
	if testing.Short() {
		t.Skip("linking takes a minute: the tier walks has it")
	}
	binary := filepath.Join(t.TempDir(), "numalet-lab")
	build := exec.Command("go", "build", "-buildvcs=auto", "-tags=netgo,osusergo",
		"-ldflags=-linkmode=external", "-o", binary, "../../cmd/numalet-lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if f, err := elf.Open(binary); err != nil {
		t.Fatal(err)
	} else if libs, err := f.ImportedLibraries(); err != nil || len(libs) == 0 {
		t.Skipf("the toolchain here links statically: libraries %v, %v", libs, err)
	}
	// The toolchain looks for the history of a clone, not of a worktree or an archive.
	if info, err := os.Stat("../../.git"); err == nil && info.IsDir() {
		head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
		said, err2 := exec.Command(binary, "--version").Output()
		want := "+numalet." + strings.TrimSpace(string(head))
		if err := errors.Join(err, err2); err != nil || !strings.Contains(string(said), want) {
			t.Errorf("--version says %s (%v), want %s", said, err, want)
		}
	}
	dir := shortDir(t)
	rig.Alone(t)
	cmd := playground(t, dir, "--once", "-o", "json", allExamples(t))
	cmd.Path = binary
	for _, r := range once(t, cmd, dir) {
		if r.Pod == "exclusive-node" && (r.State.Phase != v1.PodRunning || !r.Exclusive) {
			t.Errorf("exclusive: %+v", r)
		}
	}
}

// once runs a playground in dir to its end and returns its table. It must have left nothing.
func once(t *testing.T, cmd *exec.Cmd, dir string) (rows []assigned.Row) {
	t.Helper()
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	at := await(t, filepath.Join(dir, "numalet-*", "c"), ended)
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, trouble.String())
	}
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	nothingOf(t, at)
	return rows
}

// TestPlaygroundInterrupted: it cleans up whenever it is interrupted.
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
			cmd := playground(t, dir)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			at := await(t, filepath.Join(dir, "numalet-*", "c"), ended)
			await(t, filepath.Join(dir, "numalet-*", tc.after), ended)
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v:\n%s", err, out.String())
			}
			nothingOf(t, at)
		})
	}
}

// await waits for a file and returns its name. The end of the program before that is an error.
func await(t *testing.T, pattern string, ended <-chan error) string {
	t.Helper()
	var found []string
	harness.Eventually(t, pattern+" is there", func() (err error) {
		select {
		case err := <-ended:
			t.Fatalf("it ended before: %v", err)
		default:
		}
		found, err = filepath.Glob(pattern)
		if err == nil && len(found) == 0 {
			err = os.ErrNotExist
		}
		return err
	})
	return found[0]
}

// nothingOf looks for what the playground with a containerd in dir may have left on the machine.
// There may be others: what is not its own is not looked at.
func nothingOf(t *testing.T, dir string) {
	t.Helper()
	top := filepath.Dir(dir)
	name := filepath.Base(top)
	for _, pattern := range []string{
		filepath.Join(filepath.Dir(top), "*"),
		"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name,
		containerd.Config{Dir: dir}.NetworkNotes(),
	} {
		left, err := filepath.Glob(pattern)
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v (%v)", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), top) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		raw, _ := os.ReadFile(file) // it may have ended
		args := strings.Split(string(raw), "\x00")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, top) }) {
			t.Errorf("process %s is left: %s", filepath.Base(filepath.Dir(file)),
				fmt.Sprint(args))
		}
	}
}
