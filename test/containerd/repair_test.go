package containerd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// updates returns how often containerd was asked to change a container's resources, by its log.
func (w world) updates() int {
	w.t.Helper()
	raw, err := os.ReadFile(w.daemon.LogFile())
	if err != nil {
		w.t.Fatal(err)
	}
	const begin = "UpdateContainerResources for "
	count := 0
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, begin) && strings.Contains(line, " with Linux") {
			count++
		}
	}
	return count
}

// write writes the CPUs of a cgroup, as anybody may who is root.
func write(t *testing.T, group, cpus string) {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/cpuset", group)
	if unified() {
		dir = filepath.Join("/sys/fs/cgroup", group)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte(cpus), 0); err != nil {
		t.Fatal(err)
	}
}

// awaitCPUs waits until the cgroup, and with it each process in it, has the CPUs.
func (w world) awaitCPUs(group string, want cpuset.CPUSet) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%s has CPUs %s", group, want), func() error {
		var errs []error
		if got := cpus(w.t, group); !got.Equals(want) {
			errs = append(errs, fmt.Errorf("it has %s", got))
		}
		for _, pid := range pids(group) {
			if got := allowed(w.t, pid); !got.Equals(want) {
				errs = append(errs, fmt.Errorf("process %d has %s", pid, got))
			}
		}
		return errors.Join(errs...)
	})
}

// narrow takes all other CPUs from everything in kubepods, as the kernel does when they go offline.
func (w world) narrow(cpus cpuset.CPUSet) {
	w.t.Helper()
	var groups []string
	top := "/sys/fs/cgroup/cpuset"
	err := filepath.WalkDir(filepath.Join(top, w.qosGroup(v1.PodQOSGuaranteed)),
		func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, strings.TrimPrefix(path, top))
			}
			return err
		})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, group := range slices.Backward(groups) {
		write(w.t, group, cpus.String())
	}
}

// TestRepair: while the kernel has what is wanted, the runtime is asked for nothing. What somebody
// else writes to a cgroup is put right.
func TestRepair(t *testing.T) {
	needsCPUs(t, 2)
	w := newWorld(t)
	w.Settings["cpuManagerReconcilePeriod"] = "200ms"
	w.Start()
	shared := w.run("shared", simple("--print"))
	alone := w.run("alone", simple("--print", `resources: {limits: {cpu: "1", memory: 64Mi}}`))
	sharedGroup := filepath.Join(w.group(shared, v1.PodQOSBestEffort), w.id(shared, "main"))
	aloneGroup := filepath.Join(w.group(alone, v1.PodQOSGuaranteed), w.id(alone, "main"))
	rest, own := cpus(t, sharedGroup), cpus(t, aloneGroup)
	if own.Size() != 1 || !own.Intersection(rest).IsEmpty() {
		t.Fatalf("the exclusive container has %s, the shared one %s", own, rest)
	}

	before := w.updates()
	if before == 0 {
		t.Fatal("containerd's log does not tell of updates")
	}
	time.Sleep(3 * time.Second) // fifteen looks
	if now := w.updates(); now != before {
		t.Errorf("%d updates while nothing changed", now-before)
	}

	write(t, aloneGroup, rest.String())
	w.awaitCPUs(aloneGroup, own)
	write(t, sharedGroup, rest.Union(own).String())
	w.awaitCPUs(sharedGroup, rest)
	if now := w.updates(); now != before+2 {
		t.Errorf("two changes from outside took %d updates", now-before)
	}
	w.Eventually("two repairs are counted", func() error {
		if !strings.Contains(w.Get("/metrics"), "\nnumalet_cpu_set_repairs_total 2\n") {
			return errors.New("/metrics does not have two")
		}
		return nil
	})

	if !unified() { // where a CPU that was offline is missing in all groups, also those above
		w.Kill()
		w.narrow(rest)
		w.Start()
		w.awaitCPUs(aloneGroup, own)
		w.awaitCPUs(sharedGroup, rest)
	}
	w.remove("alone")
	w.remove("shared")
}
