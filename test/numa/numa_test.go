// Package numa_test boots a NUMA machine that an emulator makes, with a real kernel, containerd and
// runc, and has the tests in guest run inside. Their results become subtests here, and a table.
package numa_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/numalet/numalet/test/scratch"
)

// bootSeconds bounds each boot of the guest, with all that runs in it. It is long because an
// emulated machine on a busy one is slow; no test measures time with it.
const bootSeconds = 1200

// TestNUMA boots the machine twice on the same disk: what the first boot leaves running, the
// second has to bring back.
func TestNUMA(t *testing.T) {
	kernel := require(t)
	began := time.Now()
	disk := makeDisk(t, kernel, nil)
	fmt.Printf("the disk was made in %.0f s\n", time.Since(began).Seconds())
	for _, boot := range []struct{ name, run string }{
		{"first boot", "cgroups:^TestHost|^TestUnifiedKill|^TestDeleteRoot,quota:^Test,guest:^TestFirst"},
		{"second boot", "guest:^TestSecond"},
	} {
		if !t.Run(boot.name, func(t *testing.T) {
			began := time.Now()
			m := usualMachine(kernel, disk)
			results := run(t, m, boot.run)
			results.print(os.Stdout,
				fmt.Sprintf("%s, %.0f s", boot.name, time.Since(began).Seconds()))
			results.subtests(t)
		}) {
			return
		}
	}
}

// TestFunctions boots a machine that has network functions with virtual ones, with a kernel that
// knows them, and RDMA over any interface.
func TestFunctions(t *testing.T) {
	needed(t)
	m := machine{
		emulator: strings.Fields(tool(t, "qemu.sh")), kernel: tool(t, "kernel.sh", "full"),
		sockets: fourSockets, functions: withPhysical(),
	}
	m.disk = makeDisk(t, m.kernel, nil)
	began := time.Now()
	results := run(t, m, "guest:^TestFunctionsNode")
	results.print(os.Stdout, fmt.Sprintf("virtual functions, %.0f s", time.Since(began).Seconds()))
	results.subtests(t)
}

// machine is an emulated machine: the emulator's command, the folder of the kernel, the disk.
type machine struct {
	emulator     []string
	kernel, disk string
	sockets      string // "": two CPUs and no NUMA nodes
	functions    functions
	more         []string // further arguments of the emulator
	settings     []string // further ones of the first process
}

func usualMachine(kernel, disk string) machine {
	return machine{emulator: []string{"qemu-system-x86_64"}, kernel: kernel, disk: disk,
		sockets: twoSockets, functions: usual()}
}

// require returns the folder of the kernel, if everything is there that the tests need.
func require(t *testing.T) string {
	t.Helper()
	needed(t)
	if given := os.Getenv("NUMALET_KERNEL"); given != "" {
		return given
	}
	return tool(t, "kernel.sh")
}

// tool returns the output of a script that provides a part of the machine.
func tool(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command("../tools/"+script, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		leaveOut(t, fmt.Sprintf("%s: %v", script, err))
	}
	return strings.TrimSpace(string(out))
}

// needed leaves the test out where what it takes is missing.
func needed(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		leaveOut(t, "the guest's kernel and programs are for amd64")
	}
	for name, from := range needs() {
		if _, err := lookPath(name); err != nil {
			leaveOut(t, fmt.Sprintf("%v: test/tools/install.sh numa installs %s", err, from))
		}
	}
}

func leaveOut(t *testing.T, why string) {
	t.Helper()
	scratch.LeaveOut(t, "NUMA machine: "+why)
}

// run boots the guest and returns what its tests have to say when it has ended. The console's log
// is kept when the test fails.
func run(t *testing.T, m machine, programs string) *results {
	t.Helper()
	boot, err := bootArgs(m.kernel, m.disk, append([]string{"NUMALET_RUN=" + programs,
		fmt.Sprintf("NUMALET_SECONDS=%d", bootSeconds-120), "NUMALET_MAC=" + hostMAC}, m.settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(m.emulator, machineArgs(m), boot, m.more)
	before := m.disk + ".before"
	copyDisk(t, m.disk, before)
	for try := 1; ; try++ {
		console := filepath.Join(t.TempDir(), "console.log")
		results, err := emulate(t.Context(), console, args, time.Duration(try)*upWithin)
		starved := errors.Is(err, errNotUp) || errors.Is(err, errStuck) || errors.Is(err, errSilent)
		if (starved || errors.Is(err, errCrashed)) && try < tries {
			fmt.Printf("try %d: %v\n", try, err)
			copyDisk(t, before, m.disk)
			continue
		}
		if err != nil {
			t.Errorf("the guest did not end of its own accord: %v", err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the end of the guest's console:\n%s", tail(keep(t, console), 40))
			}
		})
		return results
	}
}

// copyDisk keeps a disk, or puts it back as it was: only what is written takes time and room.
func copyDisk(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", from, to).CombinedOutput()
	if err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// An emulator with few CPUs now and then starves the kernel that it runs, for good: the CPUs of
// the guest wait for each other and get no turn, or all sleep and none is woken. That is no news of
// what is tested. Until the kernel is up the time tells; then it notices CPUs that are stuck by
// itself (bootArgs), and its first process says every 15 s that it is alive.
const (
	upWithin     = 90 * time.Second // longer with each try: others may be busy here
	silentWithin = 3 * time.Minute
	tries        = 3
	stuck        = "Kernel panic - not syncing: softlockup"
	up           = "init: the machine is up"
	alive        = "init: alive"
)

var (
	errNotUp  = errors.New("the guest's kernel was not up")
	errStuck  = errors.New("the guest's CPUs were stuck")
	errSilent = fmt.Errorf("the guest's first process said nothing for %v", silentWithin)
	// Nothing that a guest does may crash its emulator.
	errCrashed = errors.New("the emulator crashed")
)

// emulate runs the emulator's command until the guest has ended, its kernel is not up within a time,
// it was too slow otherwise, or ctx ends.
func emulate(ctx context.Context, console string, args []string, within time.Duration) (
	*results, error) {
	ctx, cancel := context.WithTimeout(ctx, bootSeconds*time.Second)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	qemu := exec.CommandContext(ctx, args[0],
		append(args[1:], "-serial", "file:"+console, "-serial", "stdio")...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints bytes.Buffer
	qemu.Stderr = &complaints
	out, err := qemu.StdoutPipe()
	if err != nil {
		return &results{}, err
	}
	if err := qemu.Start(); err != nil {
		return &results{}, err
	}
	go listen(ctx, console, within, end)
	results, readErr := read(out)
	waitErr := qemu.Wait()
	if text, _ := os.ReadFile(console); bytes.Contains(text, []byte(stuck)) {
		return results, errStuck
	}
	if cause := context.Cause(ctx); cause != nil {
		return results, fmt.Errorf("%w: %w", cause, waitErr)
	}
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSEGV {
		return results, errCrashed
	}
	if waitErr != nil {
		waitErr = fmt.Errorf("%w: %s", waitErr, complaints.String())
	}
	return results, errors.Join(readErr, waitErr)
}

// listen ends a guest that is not up in time, and one that was up and falls silent, until ctx ends.
func listen(ctx context.Context, console string, within time.Duration, end func(error)) {
	last, heard := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
		text, _ := os.ReadFile(console) // the emulator makes it
		if len(text) > last && bytes.Contains(text, []byte(up)) {
			last, heard = len(text), time.Now()
		}
		switch silence := time.Since(heard); {
		case last == 0 && silence > within:
			end(fmt.Errorf("%w within %v", errNotUp, within))
		case silence > silentWithin:
			end(errSilent)
		}
	}
}

// keep copies a file to where it stays, and returns its text.
func keep(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	f, err := os.CreateTemp("", "numalet-console-*.log")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := io.Copy(f, bytes.NewReader(text)); err != nil {
		return err.Error()
	}
	t.Logf("the guest's console is kept in %s", f.Name())
	return string(text)
}

// tail returns the last lines of a text, without the guest's signs of life.
func tail(text string, lines int) string {
	all := slices.DeleteFunc(strings.SplitAfter(text, "\n"),
		func(line string) bool { return strings.TrimSpace(line) == alive })
	return strings.Join(all[max(0, len(all)-lines):], "")
}
