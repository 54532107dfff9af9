package resources

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// above is a node whose cgroups are a directory.
type above struct {
	*Groups
	mount    string
	reported []string
	active   []*v1.Pod
}

func newAbove(t *testing.T, percent int64, enforced ...string) *above {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: writes files without permissions")
	}
	a := &above{mount: t.TempDir()}
	for _, dir := range []string{"", "kubepods", "kubepods/burstable", "daemons"} {
		at := filepath.Join(a.mount, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cgroup.controllers": "cpuset cpu memory pids", "cgroup.subtree_control": "",
		} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	tree, err := cgroups.New(cgroups.Config{Mount: a.mount, HugePages: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	m := topologytest.Machine(t, []topology.Node{{ID: 0, MemoryBytes: 8 << 30}}, 1)
	h := machine.Hardware{Machine: m, Reservation: nodestatus.Reservation{Reserved: v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("1Gi"), "pid": resource.MustParse("1000"),
	}}}
	a.Groups = NewGroups(GroupsConfig{
		Kubelet: &kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: enforced,
			SystemReservedCgroup: "/daemons", SystemReserved: map[string]string{"memory": "1Gi"}},
		Tree: tree, Hardware: func() machine.Hardware { return h },
		Active:    func() []*v1.Pod { return a.active },
		Processes: func() int64 { return 30000 }, Percent: percent,
		Tell: func(kind, reason, message string) {
			a.reported = append(a.reported, fmt.Sprintf("%s %s: %s", kind, reason, message))
		},
	})
	return a
}

func (a *above) file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(a.mount, name)
	_ = os.Chmod(path, 0o644) // a file that the kernel has not made lacks permissions
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(text))
}

// TestLimitsOfAllPods: all pods together have what is not reserved, if that is enforced, and the
// daemons what is reserved.
func TestLimitsOfAllPods(t *testing.T) {
	for _, tt := range []struct {
		enforced     []string
		memory, pids string
		reported     []string
	}{
		{[]string{"none"}, "8589934592", "30000", []string{
			"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods"}},
		{[]string{"pods", "system-reserved"}, "7516192768", "29000", []string{
			"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
			"Normal NodeAllocatableEnforced: Updated limits on system reserved cgroup /daemons"}},
	} {
		a := newAbove(t, 0, tt.enforced...)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		memory, pids := a.file(t, "kubepods/memory.max"), a.file(t, "kubepods/pids.max")
		if memory != tt.memory || pids != tt.pids {
			t.Errorf("%v: memory.max %s, pids.max %s; want %s and %s", tt.enforced, memory, pids,
				tt.memory, tt.pids)
		}
		if !slices.Equal(a.reported, tt.reported) {
			t.Errorf("%v: told %q, want %q", tt.enforced, a.reported, tt.reported)
		}
		if len(tt.enforced) > 1 && a.file(t, "daemons/memory.max") != "1073741824" {
			t.Errorf("daemons have %s", a.file(t, "daemons/memory.max"))
		}
	}
}

// TestRefusedLimits: limits that the kernel refuses while pods run are told, and tried again a
// minute later, and do not keep the agent from starting. Those of the daemons do.
func TestRefusedLimits(t *testing.T) {
	a := newAbove(t, 0, "pods")
	refused := filepath.Join(a.mount, "kubepods/memory.max")
	if err := os.Mkdir(refused, 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := a.Update(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second)
		}
		const failed = "Warning FailedNodeAllocatableEnforcement: " +
			`Failed to update Node Allocatable Limits "/kubepods": `
		if len(a.reported) != 1 || !strings.HasPrefix(a.reported[0], failed) {
			t.Errorf("told %q, want one %q", a.reported, failed)
		}
		time.Sleep(time.Minute)
		if err := a.Update(t.Context()); err == nil || len(a.reported) != 2 {
			t.Errorf("a minute later: %v, told %q", err, a.reported)
		}
		if err := os.Remove(refused); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		err := a.Update(t.Context())
		if err != nil || len(a.reported) != 3 || !strings.HasPrefix(a.reported[2], "Normal") {
			t.Errorf("once it is not refused: %v, told %q", err, a.reported)
		}
	})
	b := newAbove(t, 0, "system-reserved")
	if err := os.RemoveAll(filepath.Join(b.mount, "daemons")); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err == nil || len(b.reported) != 2 {
		t.Errorf("without the daemons' cgroup: %v, told %q", err, b.reported)
	}
}

// TestGroupsAreKept: what others write into the QoS groups lasts a minute at most. That the limits of all
// pods hold is told once.
func TestGroupsAreKept(t *testing.T) {
	a := newAbove(t, 0, "pods")
	synctest.Test(t, func(t *testing.T) {
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		update := func() {
			t.Helper()
			if err := a.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		update()
		const file = "kubepods/burstable/cpu.weight"
		before := a.file(t, file)
		if err := os.WriteFile(filepath.Join(a.mount, file), []byte("77"), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(qosPeriod - time.Second)
		if update(); a.file(t, file) != "77" {
			t.Error("they are written although no pod came or went")
		}
		time.Sleep(time.Second)
		if update(); a.file(t, file) != before {
			t.Errorf("after a minute %s is %s, and was %s", file, a.file(t, file), before)
		}
		if err := a.ensure(t.Context()); err != nil || len(a.reported) != 1 {
			t.Errorf("told %q, %v", a.reported, err)
		}
	})
}

// TestMemoryOfPods: containers without a limit are throttled on the way to what is not reserved, as
// with the kubelet; what hard eviction keeps free counts.
func TestMemoryOfPods(t *testing.T) {
	h := newAbove(t, 0).cfg.Hardware()
	h.Reservation.Eviction = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	h.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("6Gi")}
	n := newNode(Settings{}, h, allocation.State{})
	if got := n.Memory.Allocatable; got != 7<<30 {
		t.Errorf("the bound is %d, want 7Gi", got)
	}
}

// TestReservedByClass: best-effort pods do not get the memory that others request.
func TestReservedByClass(t *testing.T) {
	a := newAbove(t, 50)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.active = []*v1.Pod{podtest.New("b", podtest.Containers("main memory=2Gi.."))}
	if err := a.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	burstable := a.file(t, "kubepods/burstable/memory.max")
	bestEffort := a.file(t, "kubepods/besteffort/memory.max")
	if burstable != "7516192768" || bestEffort != "6442450944" {
		t.Errorf("burstable %s, best effort %s; want 7Gi and 6Gi", burstable, bestEffort)
	}
}
