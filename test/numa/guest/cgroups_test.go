package guest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/test/harness"
)

// The cgroups of what runs beside pods, which the agent makes but for the last two.
const (
	agentGroup, runtimeGroup, systemGroup = "/agent", "/runtime", "/system"
	reservedGroup, squeezedGroup          = "/reserved", "/squeezed"
)

// useCgroups has an agent do all that it can do with cgroups.
func useCgroups(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, group := range []string{reservedGroup, squeezedGroup, runtimeGroup} {
		if err := os.MkdirAll(filepath.Join(cgroupDir, group), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.Args = append(n.Args, "--runtime-cgroups="+runtimeGroup)
	for name, value := range map[string]any{
		"cgroupRoot": "/", "kubeletCgroups": agentGroup, "systemCgroups": systemGroup,
		"systemReserved":          map[string]string{"cpu": "300m", "memory": "96Mi", "pid": "300"},
		"kubeReserved":            map[string]string{"cpu": "200m", "memory": "64Mi", "pid": "500"},
		"systemReservedCgroup":    reservedGroup,
		"kubeReservedCgroup":      squeezedGroup,
		"enforceNodeAllocatable":  []string{"pods", "system-reserved", "kube-reserved-compressible"},
		"podPidsLimit":            200,
		"memoryReservationPolicy": "TieredReservation",
		"memoryThrottlingFactor":  0.5,
		"featureGates":            map[string]bool{"QOSReserved": true},
		"qosReserved":             map[string]string{"memory": "50%"},
		"syncFrequency":           "3s", // when a pod's cgroup is missed
	} {
		n.Settings[name] = value
	}
}

// cgroupFiles are the values that an agent sets, or has the runtime set.
func cgroupFiles() []string {
	return strings.Fields("cpu.weight cpu.max cpuset.cpus memory.min memory.low memory.high " +
		"memory.max memory.swap.max memory.oom.group pids.max hugetlb.2MB.max hugetlb.1GB.max")
}

// values reads all of them, for pods by their names.
func (c client) values(t *testing.T, kinds []swaps) map[string]string {
	t.Helper()
	groups := map[string]string{}
	for _, group := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort",
		reservedGroup, squeezedGroup} {
		groups[group] = filepath.Join(cgroupDir, group)
	}
	for _, kind := range kinds {
		container := c.cgroup(t, kind.name)
		groups["pod "+kind.name] = filepath.Dir(container)
		groups["container of "+kind.name] = container
	}
	out := map[string]string{}
	for name, folder := range groups {
		for _, file := range cgroupFiles() {
			text, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			out[name+" "+file] = strings.TrimSpace(string(text))
		}
	}
	return out
}

// awaitRequests waits until the cgroups above the pods have what all pods of the test request.
func awaitRequests(t *testing.T) {
	t.Helper()
	const mib = 1 << 20
	pods := filepath.Join(cgroupDir, "kubepods")
	for file, want := range map[string]int{"memory.min": 576 * mib, "memory.low": 512 * mib} {
		harness.Eventually(t, fmt.Sprintf("%s of all pods is %d", file, want), func() error {
			if got := saidNumber(t, pods, file); got != want {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
	}
}

// meantDifferences are values that are not to be the kubelet's, with the reason.
func meantDifferences() map[string]string {
	const all = "the kubelet names all CPUs; a set that is not limited has those that come later, too"
	const huge = "the kubelet lifts this limit again with those of the QoS classes"
	return map[string]string{
		reservedGroup + " cpuset.cpus": all, squeezedGroup + " cpuset.cpus": all,
		"kubepods cpuset.cpus": all, "kubepods hugetlb.2MB.max": huge,
	}
}

// compareCgroups compares the values under numalet with those under the stock kubelet.
func compareCgroups(t *testing.T, numalet, kubelet map[string]string) {
	t.Helper()
	meant := meantDifferences()
	same := 0
	for _, name := range slices.Sorted(maps.Keys(kubelet)) {
		ours, theirs := numalet[name], kubelet[name]
		switch why, differs := meant[name]; {
		case ours == theirs && !differs:
			same++
		case ours == theirs:
			t.Errorf("%s is %q under both: %s", name, ours, why)
		case differs:
			row(t, "%s: %q, kubelet %q: %s", name, ours, theirs, why)
		default:
			t.Errorf("%s is %q, under the kubelet %q", name, ours, theirs)
		}
	}
	row(t, "%d values are the kubelet's", same)
}

// testDaemons: what runs beside pods is in its cgroup, is reported, and the kernel kills it last.
func testDaemons(t *testing.T, n *harness.Node, moves bool) {
	t.Helper()
	in := func(pid int) string {
		text := said(t, "/proc", strconv.Itoa(pid), "cgroup")
		_, group, _ := strings.Cut(text, "0::")
		return strings.TrimSpace(group)
	}
	n.Eventually("the agent is in its cgroup", func() error {
		if got := in(n.PID()); got != agentGroup {
			return fmt.Errorf("it is in %s", got)
		}
		return nil
	})
	if score := saidNumber(t, "/proc", strconv.Itoa(n.PID()), "oom_score_adj"); score != -999 {
		t.Errorf("the agent's oom_score_adj is %d, want -999", score)
	}
	n.Eventually("the top of the hierarchy has only what must be there", func() error {
		for _, pid := range strings.Fields(said(t, cgroupDir, "cgroup.procs")) {
			program, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
			if pid != "1" && err == nil {
				return fmt.Errorf("process %s is there: %s", pid, program)
			}
		}
		return nil
	})
	if got := in(os.Getpid()); got != systemGroup {
		t.Errorf("another process is in %s", got)
	}
	if moves {
		n.Eventually("the runtime is in its cgroup", func() error {
			for _, pid := range strings.Fields(said(t, cgroupDir, runtimeGroup, "cgroup.procs")) {
				if said(t, "/proc", pid, "comm") == "containerd" {
					return nil
				}
			}
			return errors.New("it is not there")
		})
	}
	n.Eventually("all of it is in the statistics", func() error {
		var s statsapi.Summary
		if err := json.Unmarshal([]byte(n.Get("/stats/summary")), &s); err != nil {
			return err
		}
		var names []string
		for _, one := range s.Node.SystemContainers {
			if one.CPU != nil && one.Memory != nil {
				names = append(names, one.Name)
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != "kubelet misc pods runtime" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
}

// testHugePagesCount: what the machine has of memory is in use, available, or preallocated as huge pages if
// these count, and else available.
func testHugePagesCount(t *testing.T, n *harness.Node, count bool) {
	t.Helper()
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(n.Get("/stats/summary")), &s); err != nil {
		t.Fatal(err)
	}
	memory := s.Node.Memory
	got := meminfo(t, "MemTotal:") - int(*memory.WorkingSetBytes) - int(*memory.AvailableBytes)
	pages := meminfo(t, "Hugetlb:")
	row(t, "neither used nor available: %d MiB, huge pages %d MiB", got>>20, pages>>20)
	want := 0
	if count {
		want = pages
	}
	if got != want || pages == 0 {
		t.Errorf("%d bytes are neither used nor available, want %d; in huge pages are %d", got, want, pages)
	}
}

// testLostCgroup: a pod whose cgroup is removed while it runs is stopped and made anew.
func testLostCgroup(t *testing.T, c client, reported string) {
	t.Helper()
	const name = "burstable"
	container := c.cgroup(t, name)
	pod := filepath.Dir(container)
	harness.Eventually(t, "the cgroup is removed", func() error {
		groups, err := filepath.Glob(pod + "/*/cgroup.procs")
		if err != nil {
			return err
		}
		for _, procs := range groups {
			for _, pid := range strings.Fields(said(t, procs)) {
				err = errors.Join(err, os.WriteFile(
					filepath.Join(cgroupDir, systemGroup, "cgroup.procs"), []byte(pid), 0))
			}
			err = errors.Join(err, os.Remove(filepath.Dir(procs)))
		}
		if err == nil {
			err = os.Remove(pod)
		}
		return err
	})
	harness.Eventually(t, "it is made anew", func() error {
		if _, err := os.Stat(container); err == nil {
			return errors.New("the old container has a cgroup again")
		}
		is, err := c.CoreV1().Pods(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := is.Status.ContainerStatuses
		if len(now) == 0 || now[0].State.Running == nil || id(*is) == filepath.Base(container) {
			return fmt.Errorf("the pod is %s: %+v", is.Status.Phase, now)
		}
		_, err = os.Stat(filepath.Join(pod, id(*is)))
		return err
	})
	row(t, "%s: a removed cgroup is made anew", name)
	harness.Eventually(t, "the pod is told", func() error {
		events, err := c.CoreV1().Events(c.namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + name + ",reason=Killing"})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return strings.Contains(e.Message, reported)
		}) {
			return fmt.Errorf("no event Killing says %q", reported)
		}
		return nil
	})
}
