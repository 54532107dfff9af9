package kernel_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/test/scratch"
)

// What the hog of TestWhatAPodCannotHide has.
const (
	hogThreads = 200
	hogBytes   = 32 << 20
)

// TestHog is the process of TestWhatAPodCannotHide: when it is told so, it has threads and a file in memory,
// whose descriptor it prints, until its input ends.
func TestHog(t *testing.T) {
	if os.Getenv("NUMALET_HOG") == "" {
		t.Skip("a process of TestWhatAPodCannotHide")
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("hog", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, make([]byte, hogBytes)); err != nil {
		t.Fatal(err)
	}
	for range hogThreads {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	fmt.Println(fd)
	_, _ = in.ReadString('\n')
}

// TestWhatAPodCannotHide: on the kernel of this machine the threads of a pod count as its processes, and a
// deleted file in memory counts as its memory when the process and the container that wrote it are gone.
func TestWhatAPodCannotHide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this machine")
	}
	pod := scratch.Cgroup("hide")
	if err := cgroups.CreateRoot(pod); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := cgroups.DeleteRoot(context.Background(), pod); err != nil {
				t.Error(err)
			}
		}
	})
	containers := []string{"/sys/fs/cgroup" + pod}
	if kernel.NewGroups("").Version() == 1 {
		containers = []string{"/sys/fs/cgroup/memory" + pod, "/sys/fs/cgroup/pids" + pod}
	}
	hog := exec.Command(os.Args[0], "-test.run=^TestHog$")
	hog.Env = append(os.Environ(), "NUMALET_HOG=yes")
	in, err := hog.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := hog.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = hog.Wait()
		}
	}
	t.Cleanup(end)
	for i, dir := range containers {
		containers[i] = filepath.Join(dir, "container")
		if err := os.Mkdir(containers[i], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(containers[i], "cgroup.procs"),
			[]byte(strconv.Itoa(hog.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Fprintln(in); err != nil {
		t.Fatal(err)
	}
	fd, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(fmt.Sprintf("/proc/%d/fd/%s", hog.Process.Pid, strings.TrimSpace(fd)))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	read := func() kernel.Counts {
		t.Helper()
		c, err := kernel.NewGroups("").Reader().Use(pod)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	began := time.Now()
	for read().Processes < hogThreads {
		if time.Since(began) > time.Minute {
			t.Fatalf("a process with %d threads counts as %d", hogThreads, read().Processes)
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	for _, dir := range containers {
		for began := time.Now(); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s cannot be removed", dir)
			}
		}
	}
	if c := read(); c.Memory.WorkingSet() < hogBytes || c.Processes != 0 {
		t.Errorf("when its container is gone, the pod has %d bytes and %d processes, want a file of %d",
			c.Memory.WorkingSet(), c.Processes, hogBytes)
	}
}
