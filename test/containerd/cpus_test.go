package containerd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// TestCgroups: values of pods' and containers' cgroups, and those of the classes, as written by the
// agent and the runtime.
func TestCgroups(t *testing.T) {
	w := newWorld(t)
	w.Start()
	t.Run("burstable", func(t *testing.T) { testBurstable(t, w.as(t)) })
	t.Run("best effort", func(t *testing.T) { testBestEffort(t, w.as(t)) })
	t.Run("guaranteed", func(t *testing.T) { testGuaranteed(t, w.as(t)) })
	t.Run("exclusive", func(t *testing.T) { testNoQuota(t, w.as(t)) })
}

// The settings that tests look at, with what they should be.

func shares(shares, weight string) setting {
	return setting{"cpu", "cpu.shares", shares, "cpu.weight", weight}
}

func quota(legacy, v2 string) setting {
	return setting{"cpu", "cpu.cfs_quota_us", legacy, "cpu.max", v2 + " 100000"}
}

func memory(bytes string) setting {
	return setting{"memory", "memory.limit_in_bytes", bytes, "memory.max", bytes}
}

func processes(most string) setting { return setting{"pids", "pids.max", most, "pids.max", most} }

// noMemory is the kernel's way of saying that there is no limit.
func noMemory() setting {
	return setting{"memory", "memory.limit_in_bytes", "9223372036854771712", "memory.max", "max"}
}

func testBurstable(t *testing.T, w world) {
	pod := w.run("burstable", simple("--print",
		"resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}"))
	group := w.group(pod, v1.PodQOSBurstable)
	container := filepath.Join(group, w.id(pod, "main"))
	for _, g := range []string{group, container} {
		w.expect(g, shares("256", "10"), quota("50000", "50000"), memory("67108864"))
	}
	w.expect(group, processes("500"))
	w.Eventually("the class has the shares of its pods", func() error {
		want := shares("256", "10")
		got, err := cgroupFile(w.qosGroup(v1.PodQOSBurstable), "cpu", want.name())
		if err == nil && got != want.is() {
			err = fmt.Errorf("they are %s", got)
		}
		return err
	})
	if pod.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("class %s", pod.Status.QOSClass)
	}
	w.remove("burstable")
	if left := pids(container); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := cgroupFile(group, "cpu", "cgroup.procs"); !os.IsNotExist(err) {
		t.Errorf("the pod's cgroup is left: %v", err)
	}
}

func testBestEffort(t *testing.T, w world) {
	pod := w.run("effort", simple("--print"))
	group := w.group(pod, v1.PodQOSBestEffort)
	for _, g := range []string{group, filepath.Join(group, w.id(pod, "main"))} {
		w.expect(g, shares("2", "1"), quota("-1", "max"), noMemory())
	}
	w.expect(w.qosGroup(v1.PodQOSBestEffort), shares("2", "1"))
	w.remove("effort")
}

// testGuaranteed: CPUs of its own are for whole ones only.
func testGuaranteed(t *testing.T, w world) {
	pod := w.run("fraction", simple("--print", "resources: {limits: {cpu: 500m, memory: 64Mi}}"))
	group := w.group(pod, v1.PodQOSGuaranteed)
	for _, g := range []string{group, filepath.Join(group, w.id(pod, "main"))} {
		w.expect(g, shares("512", "20"), quota("50000", "50000"), memory("67108864"))
	}
	if r := w.report(pod, "main"); r.OOMScoreAdj != "-997" && r.OOMScoreAdj != ownScore(t) {
		t.Errorf("oom_score_adj %s, want -997, or what containerd may set", r.OOMScoreAdj)
	}
	rows, err := w.Placements()
	if err != nil {
		t.Fatal(err)
	}
	if row := rows[pod.Name+"/main"]; row.Exclusive {
		t.Errorf("half a CPU is exclusive: %+v", row)
	}
	w.remove("fraction")
}

// ownScore is the lowest OOM score that a process without CAP_SYS_RESOURCE may set.
func ownScore(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// testNoQuota: a quota could only slow down a container on CPUs of its own.
func testNoQuota(t *testing.T, w world) {
	needsCPUs(t, 2)
	pod := w.run("alone", simple("--print", `resources: {limits: {cpu: "1", memory: 64Mi}}`))
	group := w.group(pod, v1.PodQOSGuaranteed)
	container := filepath.Join(group, w.id(pod, "main"))
	for _, g := range []string{group, container} {
		w.expect(g, shares("1024", "39"), quota("-1", "max"), memory("67108864"))
	}
	r := w.report(pod, "main")
	w.expect(container, setting{"cpuset", "cpuset.cpus", r.CPUs, "cpuset.cpus", r.CPUs})
	w.remove("alone")
}

func (s setting) name() string {
	if unified() {
		return s.v2
	}
	return s.legacy
}

func (s setting) is() string {
	if unified() {
		return s.v2Is
	}
	return s.legacyIs
}

// TestSharedPool: containers without CPUs of their own leave those of an exclusive one before it
// starts, and come back when it has ended. They are not restarted for that.
func TestSharedPool(t *testing.T) {
	needsCPUs(t, 2)
	w := newWorld(t)
	w.Start()
	w.create("shared", simple("--print"))
	w.create("shared-2", simple("--print"))
	shared := []v1.Pod{
		w.AwaitPhase("shared-node", v1.PodRunning), w.AwaitPhase("shared-2-node", v1.PodRunning),
	}
	var groups []string
	for _, pod := range shared {
		groups = append(groups,
			filepath.Join(w.group(pod, v1.PodQOSBestEffort), w.id(pod, "main")))
	}
	all := cpus(t, groups[0])

	watch := watchOverlap(w, groups)
	pod := w.run("alone", simple("--print", `resources: {limits: {cpu: "1", memory: 64Mi}}`))
	own, err := cpuset.Parse(w.report(pod, "main").CPUs)
	if err != nil || own.Size() != 1 {
		t.Fatalf("the exclusive container runs on %v, %v", own, err)
	}
	watch.stop(t)
	rest := all.Difference(own)
	for _, group := range groups {
		if got := cpus(t, group); !got.Equals(rest) {
			t.Errorf("beside an exclusive container on %s a shared one may run on %s, want %s",
				own, got, rest)
		}
		for _, pid := range pids(group) {
			if got := allowed(t, pid); !got.Equals(rest) {
				t.Errorf("process %d may run on %s, want %s", pid, got, rest)
			}
		}
	}
	late := w.run("late", simple("--print"))
	if got := w.report(late, "main").CPUs; got != rest.String() {
		t.Errorf("a shared container that comes later may run on %s, want %s", got, rest)
	}

	w.remove("alone")
	w.Eventually("shared containers run everywhere again", func() error {
		for _, group := range groups {
			if got := cpus(t, group); !got.Equals(all) {
				return fmt.Errorf("%s has %s, want %s", group, got, all)
			}
		}
		return nil
	})
	pods, err := w.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range shared {
		now := pods[before.Name]
		if w.id(now, "main") != w.id(before, "main") || w.statusOf(now, "main").RestartCount != 0 {
			t.Errorf("%s was restarted: %+v", before.Name, w.statusOf(now, "main"))
		}
	}
}

func cpus(t *testing.T, group string) cpuset.CPUSet {
	t.Helper()
	text, err := cgroupFile(group, "cpuset", "cpuset.cpus")
	if err != nil {
		t.Fatal(err)
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// allowed returns the CPUs on which the kernel runs a process.
func allowed(t *testing.T, pid int) cpuset.CPUSet {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			set, err := cpuset.Parse(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
	}
	t.Fatalf("process %d has no Cpus_allowed_list", pid)
	return cpuset.CPUSet{}
}

// overlap looks all the time whether a container of one CPU, with processes in it, has a CPU that
// shared ones may use. It may miss it when that is short, and is never wrong about it.
type overlap struct {
	end  chan struct{}
	done sync.WaitGroup
	seen string
}

func watchOverlap(w world, shared []string) *overlap {
	o := &overlap{end: make(chan struct{})}
	pattern := filepath.Join("/sys/fs/cgroup/cpuset", w.cgroup, "kubepods/pod*/*/cgroup.procs")
	if unified() {
		pattern = filepath.Join("/sys/fs/cgroup", w.cgroup, "kubepods/pod*/*/cgroup.procs")
	}
	o.done.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for o.seen == "" {
			select {
			case <-o.end:
				return
			case <-tick.C:
				o.seen = overlapping(pattern, shared)
			}
		}
	})
	return o
}

func overlapping(pattern string, shared []string) string {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err.Error()
	}
	for _, file := range files {
		procs, _ := os.ReadFile(file) // it may be gone
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cpuset.cpus"))
		own, err := cpuset.Parse(strings.TrimSpace(string(text)))
		if err != nil || own.Size() != 1 || len(procs) == 0 {
			continue
		}
		for _, group := range shared {
			text, _ := cgroupFile(group, "cpuset", "cpuset.cpus")
			if set, err := cpuset.Parse(text); err == nil && !set.Intersection(own).IsEmpty() {
				return fmt.Sprintf("%s has processes on CPU %s while %s may use %s",
					file, own, group, set)
			}
		}
	}
	return ""
}

// stop ends it and fails the test when an overlap was seen.
func (o *overlap) stop(t *testing.T) {
	t.Helper()
	close(o.end)
	o.done.Wait()
	if o.seen != "" {
		t.Error(o.seen)
	}
}
